"""The errors Tulip answers with: a function each, so that a fault has one code and one wording."""

from __future__ import annotations

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.step import is_out_of_memory
from hotbed.wire.errors import RETRY_AFTER_S


def too_large(num: int, limit: int, unit: str) -> HotbedError:
    """The item can never fit; `unit` is ``tokens``, ``sequences`` and the like."""
    return HotbedError(
        ErrorCode.TOO_LARGE, f"the request has {num} {unit}, the limit is {limit}", param="batch"
    )


def queue_full(
    num_waiting_tokens: int, num_tokens: int, max_queue_tokens: int, retry_after_s: float
) -> HotbedError:
    """The item does not fit now."""
    return HotbedError(
        ErrorCode.OVERLOADED,
        f"{num_waiting_tokens} tokens wait, {num_tokens} more would pass the queue's limit of "
        f"{max_queue_tokens}",
        retry_after_s=retry_after_s,
    )


def stream_full(max_stream_items: int) -> HotbedError:
    """The stream has as many items in flight as it may."""
    return HotbedError(
        ErrorCode.OVERLOADED,
        f"{max_stream_items} items are in flight on this stream, its limit",
        retry_after_s=RETRY_AFTER_S,
    )


def expired() -> HotbedError:
    """The item's deadline passed first."""
    return HotbedError(
        ErrorCode.DEADLINE_EXCEEDED, "the time limit of the request passed before the answer"
    )


def cancelled() -> HotbedError:
    """The client took the item back."""
    return HotbedError(ErrorCode.CANCELLED, "the request was cancelled")


def not_finite(index: int) -> HotbedError:
    """The row of sequence `index` of the item is NaN or infinite."""
    return HotbedError(
        ErrorCode.INTERNAL,
        f"the model gave values that are not finite for sequence {index}",
        param=f"input[{index}]",
    )


def sequence_failed(index: int, num_tokens: int, error: BaseException) -> HotbedError:
    """A step of sequence `index` of the item alone failed with `error`."""
    param = f"input[{index}]"
    if is_out_of_memory(error):
        return HotbedError(
            ErrorCode.OVERLOADED,
            f"out of memory on sequence {index} ({num_tokens} tokens) alone",
            param=param,
            retry_after_s=RETRY_AFTER_S,
        )
    return HotbedError(
        ErrorCode.INTERNAL,
        f"the engine failed on sequence {index} ({num_tokens} tokens) alone",
        param=param,
    )


def unavailable(why: str) -> HotbedError:
    """Nothing is served at the moment; `why` is ``loading``, ``draining`` and the like."""
    return HotbedError(ErrorCode.UNAVAILABLE, f"the server is {why}", retry_after_s=RETRY_AFTER_S)
