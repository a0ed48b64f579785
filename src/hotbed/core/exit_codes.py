"""What a Hotbed process exits with: tells who started it whether a retry makes sense."""

from __future__ import annotations

from hotbed.core.errors import ErrorCode, HotbedError

EXIT_FAILURE = 1
"""It failed; started again it may work."""
EXIT_CONFIGURATION = 2
"""Its settings or its model can never work; also what a wrong option gives."""
EXIT_INTERRUPTED = 130
"""Someone pressed Ctrl-C; what shells give for it."""


def exit_code(error: HotbedError) -> int:
    """Exit code of a process that ends because of `error`."""
    if error.code in (ErrorCode.INVALID_INPUT, ErrorCode.MODEL_NOT_FOUND, ErrorCode.TOO_LARGE):
        return EXIT_CONFIGURATION
    if error.code is ErrorCode.CANCELLED:
        return EXIT_INTERRUPTED
    return EXIT_FAILURE
