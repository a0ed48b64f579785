from __future__ import annotations

import pytest

from hotbed.text.backend import HuggingFaceBackend
from hotbed.text.cost import Cost, measure_cost
from tests.support.tiny_tokenizers import wordpiece


def test_estimate_grows_with_the_characters() -> None:
    cost = Cost(us_per_text=10, us_per_kchar=100, us_per_kchar_wide=2000)
    assert cost.estimate_us([]) == 10
    assert cost.estimate_us(["a" * 500, "b" * 500]) == pytest.approx(110)


def test_chinese_is_not_taken_for_english() -> None:
    """Estimated as English, some kilobytes of it would hold up the event loop for 20 ms."""
    cost = Cost(us_per_text=10, us_per_kchar=100, us_per_kchar_wide=2000)
    assert cost.estimate_us(["中" * 500]) == pytest.approx(1010)
    assert cost.estimate_us(["中" * 500, "a" * 500]) == pytest.approx(1060)


def test_measured_cost_is_plausible() -> None:
    cost = measure_cost(HuggingFaceBackend(wordpiece()))
    for value in (cost.us_per_text, cost.us_per_kchar, cost.us_per_kchar_wide):
        assert 0.01 < value < 1e6
