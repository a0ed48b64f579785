"""A start that can never work is told apart from one that may work next time."""

from __future__ import annotations

import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.exit_codes import EXIT_CONFIGURATION, EXIT_FAILURE, exit_code


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.INVALID_INPUT, EXIT_CONFIGURATION),
        (ErrorCode.MODEL_NOT_FOUND, EXIT_CONFIGURATION),
        (ErrorCode.TOO_LARGE, EXIT_CONFIGURATION),
        (ErrorCode.UNAVAILABLE, EXIT_FAILURE),
        (ErrorCode.INTERNAL, EXIT_FAILURE),
    ],
)
def test_only_errors_that_stay_end_for_good(code: ErrorCode, expected: int) -> None:
    assert exit_code(HotbedError(code, "x")) == expected
