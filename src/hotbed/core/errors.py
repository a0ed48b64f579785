"""The closed set of errors that can reach a client.

`hotbed.wire.errors` maps each code to a gRPC and an HTTP status; no other table exists.
"""

from __future__ import annotations

import enum
import re

# Replicas say "sequence 3" of the item they were given.
_PLACE = re.compile(r"input\[(\d+)\]|\bsequence (\d+)\b")


class ErrorCode(enum.Enum):
    """Why a request was not answered with rows. The value is the code's name on the wire."""

    INVALID_INPUT = "invalid_input"
    """The request is wrong and would stay wrong: field, type, range, empty text, unknown option."""
    MODEL_NOT_FOUND = "model_not_found"
    """No served model has the name asked for."""
    TOO_LARGE = "too_large"
    """The request can never fit a stated limit (body bytes, inputs, tokens)."""
    OVERLOADED = "overloaded"
    """The queue is full now; the same request can succeed later."""
    DEADLINE_EXCEEDED = "deadline_exceeded"
    """The time the client gave ran out before the answer was ready."""
    CANCELLED = "cancelled"
    """The client took the request back."""
    UNAVAILABLE = "unavailable"
    """Nothing can serve at the moment: starting, draining, or every replica is down."""
    INTERNAL = "internal"
    """A fault of ours, also a non-finite result: never sent as a vector."""


class HotbedError(Exception):
    """An error with a code, a message for the person who sent the request, and the field at fault.

    Args:
        code: member of the closed set.
        message: names the field and the limit; holds no request text.
        param: the request field at fault, in the form ``input[3]``; None if no single field is.
        retry_after_s: seconds after which a retry makes sense; None if it never does.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.code, self.message, self.param, self.retry_after_s))


def _rebuild(
    code: ErrorCode, message: str, param: str | None, retry_after_s: float | None
) -> HotbedError:
    return HotbedError(code, message, param=param, retry_after_s=retry_after_s)


def invalid(message: str, param: str | None = None) -> HotbedError:
    """Shorthand for the commonest error: INVALID_INPUT with the field at fault."""
    return HotbedError(ErrorCode.INVALID_INPUT, message, param=param)


def shift_input_index(error: HotbedError, first: int) -> HotbedError:
    """The error with every ``input[i]`` or ``sequence i`` as ``input[i + first]``.

    For whoever hands a long list on in pieces: a person must read the index in the whole list.
    """

    def shift(match: re.Match[str]) -> str:
        return f"input[{int(match[1] or match[2]) + first}]"

    return HotbedError(
        error.code,
        _PLACE.sub(shift, error.message),
        param=None if error.param is None else _PLACE.sub(shift, error.param),
        retry_after_s=error.retry_after_s,
    )
