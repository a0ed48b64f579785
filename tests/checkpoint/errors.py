"""How these tests look at errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hotbed.core.errors import ErrorCode, HotbedError


@contextmanager
def refused(*parts: str, code: ErrorCode = ErrorCode.INVALID_INPUT) -> Iterator[None]:
    """The block raises a HotbedError of `code` whose message holds every one of `parts`."""
    with pytest.raises(HotbedError) as caught:
        yield
    assert caught.value.code is code, caught.value.message
    for part in parts:
        assert part in caught.value.message, caught.value.message
