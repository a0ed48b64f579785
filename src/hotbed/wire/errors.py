"""The one table from error codes to gRPC and HTTP status, and errors to and from the wire.

On a stream an error travels as the proto message `Error`, an item each. On a unary call it ends
the call with a status; the same message rides along as binary trailing metadata, so that code,
field and retry hint survive.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.wire import tulip_pb2 as pb

DETAIL_KEY = "hotbed-error-bin"
"""Trailing metadata key that carries the serialized `Error` of a failed unary call."""

RETRY_AFTER_S = 1.0
"""Retry hint where nothing better is known: the server is not there, or the rate is unknown."""

_STATUS: dict[ErrorCode, tuple[grpc.StatusCode, int]] = {
    ErrorCode.INVALID_INPUT: (grpc.StatusCode.INVALID_ARGUMENT, 400),
    ErrorCode.MODEL_NOT_FOUND: (grpc.StatusCode.NOT_FOUND, 404),
    # Not RESOURCE_EXHAUSTED: proxies and retry policies repeat that one, and a request that can
    # never fit would be repeated for ever.
    ErrorCode.TOO_LARGE: (grpc.StatusCode.OUT_OF_RANGE, 413),
    ErrorCode.OVERLOADED: (grpc.StatusCode.RESOURCE_EXHAUSTED, 429),
    ErrorCode.DEADLINE_EXCEEDED: (grpc.StatusCode.DEADLINE_EXCEEDED, 504),
    ErrorCode.CANCELLED: (grpc.StatusCode.CANCELLED, 499),
    ErrorCode.UNAVAILABLE: (grpc.StatusCode.UNAVAILABLE, 503),
    ErrorCode.INTERNAL: (grpc.StatusCode.INTERNAL, 500),
}

_FROM_STATUS: dict[grpc.StatusCode, ErrorCode] = {
    status: code for code, (status, _) in _STATUS.items()
}

# What gRPC itself says when a message is over the limit, with RESOURCE_EXHAUSTED.
_TOO_LARGE_DETAILS = "message larger than max"

_PLAIN_MESSAGES: dict[ErrorCode, str] = {
    ErrorCode.TOO_LARGE: "the request or its reply is larger than a gRPC message may be",
    ErrorCode.OVERLOADED: "the server is out of resources",
    ErrorCode.DEADLINE_EXCEEDED: "the time limit of the request passed before the answer",
    ErrorCode.CANCELLED: "the request was cancelled",
    ErrorCode.UNAVAILABLE: "the server cannot be reached",
}


def http_status(code: ErrorCode) -> int:
    """HTTP status of an error code."""
    return _STATUS[code][1]


def grpc_status(code: ErrorCode) -> grpc.StatusCode:
    """GRPC status of an error code; no two codes share one."""
    return _STATUS[code][0]


def error_to_proto(error: HotbedError) -> pb.Error:
    """The error as a message; a retry hint is rounded up to whole milliseconds."""
    retry_after_s = error.retry_after_s
    return pb.Error(
        code=error.code.value,
        message=error.message,
        param=error.param or "",
        retry_after_ms=0 if retry_after_s is None else max(1, math.ceil(retry_after_s * 1000)),
    )


def error_from_proto(message: pb.Error) -> HotbedError:
    """The error a message holds; a code this version does not know becomes INTERNAL."""
    try:
        code = ErrorCode(message.code)
    except ValueError:
        code = ErrorCode.INTERNAL
    return HotbedError(
        code,
        message.message,
        param=message.param or None,
        retry_after_s=message.retry_after_ms / 1000 or None,
    )


def error_from_rpc(error: grpc.RpcError) -> HotbedError:
    """The error behind a failed call, whoever raised it: Tulip, gRPC on either end, or a proxy.

    gRPC's own details name addresses and internals, so they do not enter the message: chain the
    RpcError (``raise error_from_rpc(e) from e``) to keep them for the log.
    """
    if not isinstance(error, grpc.Call | grpc.aio.AioRpcError):
        return HotbedError(ErrorCode.INTERNAL, "the call failed without a gRPC status")
    detail = _detail(error.trailing_metadata())
    if detail is not None:
        return error_from_proto(detail)
    status = error.code()
    code = _FROM_STATUS.get(status, ErrorCode.INTERNAL)
    if code is ErrorCode.OVERLOADED and _TOO_LARGE_DETAILS in (error.details() or "").lower():
        code = ErrorCode.TOO_LARGE
    return HotbedError(
        code,
        _PLAIN_MESSAGES.get(code, f"the call failed with gRPC status {status.name}"),
        retry_after_s=(
            RETRY_AFTER_S if code in (ErrorCode.OVERLOADED, ErrorCode.UNAVAILABLE) else None
        ),
    )


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: HotbedError) -> NoReturn:
    """End a unary call with the error's status, its message and its full detail."""
    await context.abort(
        grpc_status(error.code),
        error.message,
        trailing_metadata=((DETAIL_KEY, error_to_proto(error).SerializeToString()),),
    )
    raise AssertionError("context.abort returned: this is a bug")


def _detail(metadata: Any) -> pb.Error | None:
    """The `Error` in a call's trailing metadata (pairs, or None), if Tulip put one there."""
    for key, value in metadata or ():
        if key == DETAIL_KEY and isinstance(value, bytes):
            try:
                return pb.Error.FromString(value)
            except DecodeError:
                return None
    return None
