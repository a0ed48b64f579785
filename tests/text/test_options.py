from __future__ import annotations

import pytest

from hotbed.core.errors import HotbedError
from hotbed.text.options import EncodeOptions


@pytest.mark.parametrize("side", ["Right", "LEFT", "", "both", None])
def test_unknown_side_is_an_error_not_the_other_side(side: str) -> None:
    with pytest.raises(HotbedError) as caught:
        EncodeOptions(truncation_side=side)  # type: ignore[arg-type]
    assert caught.value.param == "truncation_side"


def test_options_cannot_be_changed_between_threads() -> None:
    with pytest.raises(AttributeError):
        EncodeOptions().truncate = True  # type: ignore[misc]


def test_true_is_no_limit_of_one() -> None:
    assert EncodeOptions(max_tokens=1).limit(max_tokens=16, num_special_tokens=0) == 1
    with pytest.raises(HotbedError) as caught:
        EncodeOptions(max_tokens=True).limit(max_tokens=16, num_special_tokens=0)
    assert caught.value.param == "max_tokens"
