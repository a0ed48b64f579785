from __future__ import annotations

import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.text.backend import panic_as_error


class PanicException(BaseException):
    """What PyO3 raises when Rust panics: not an Exception."""


def test_rust_panic_does_not_kill_the_server() -> None:
    with pytest.raises(HotbedError) as caught, panic_as_error():
        raise PanicException("assertion failed: stride < max_len")
    assert caught.value.code is ErrorCode.INTERNAL
    assert "stride" not in caught.value.message
    assert isinstance(caught.value.__cause__, PanicException)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_everything_else_passes(error: type[BaseException]) -> None:
    with pytest.raises(error), panic_as_error():
        raise error
