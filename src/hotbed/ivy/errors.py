"""Errors: what status each has, and the form that OpenAI's clients expect.

That form is {"error": {"message", "type", "param", "code"}}; dialects with another one build it from
`failure`.

What the status of each error is:

| what | status | code |
|---|---|---|
| body, field, type or range wrong; more than `max_inputs` inputs; a text longer than the model's limit without `truncate` | 400 | invalid_input |
| no good API key, where one is needed | 401 | invalid_api_key |
| model name unknown | 404 | model_not_found |
| path unknown | 404 | not_found |
| method not for this path | 405 | method_not_allowed |
| body did not arrive in time | 408 | request_timeout |
| body over `max_body_bytes`, also after decompression; more than `max_request_tokens` tokens | 413 | too_large |
| content type not JSON; content encoding other than gzip or deflate | 415 | unsupported_media_type |
| request line and headers over 32 KiB | 431 | headers_too_large |
| queue full, now (Retry-After) | 429 | overloaded |
| client gone (nobody reads it) | 499 | cancelled |
| a fault of ours | 500 | internal |
| starting, draining, all replicas down (Retry-After) | 503 | unavailable |
| time ran out | 504 | deadline_exceeded |

The codes that leave through gRPC too have their status from `hotbed.wire.errors`.
"""  # noqa: E501

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import msgspec

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.ivy.http import CLOSE, JSON_TYPE, Headers, Reply
from hotbed.wire.errors import http_status


class ErrorDetail(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What went wrong."""

    message: str
    """For a person: names the field and the limit."""
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    param: str | None
    """The field at fault, e.g. input[3]."""
    code: str


class ErrorAnswer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Answer of every request that failed."""

    error: ErrorDetail


class HttpError(Exception):
    """An error that only HTTP knows: path, method, media type.

    Args:
        status: HTTP status.
        code: short name in the answer.
        message: for the person who sent the request.
        headers: more headers of the answer.
    """

    def __init__(self, status: int, code: str, message: str, headers: Headers = ()) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as HTTP sees it, for a dialect to put into its own form.

    Attributes:
        status: HTTP status.
        message: for a person: names the field and the limit.
        param: the field at fault.
        code: of the table above.
        headers: of the answer, content type included.
    """

    status: int
    message: str
    param: str | None
    code: str
    headers: Headers


def failure(error: HotbedError | HttpError) -> Failure:
    """What the answer to a request that failed must say."""
    if isinstance(error, HttpError):
        return Failure(error.status, error.message, None, error.code, (JSON_TYPE, *error.headers))
    headers: list[tuple[bytes, bytes]] = [JSON_TYPE]
    if error.retry_after_s is not None:
        # The header has whole seconds only (RFC 9110, 10.2.3).
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s))))
    if error.code is ErrorCode.TOO_LARGE:
        # Part of the body may still be on its way.
        headers.append(CLOSE)
    return Failure(
        http_status(error.code), error.message, error.param, error.code.value, tuple(headers)
    )


def error_reply(error: HotbedError | HttpError) -> Reply:
    """The answer to a request that failed, in OpenAI's form."""
    failed = failure(error)
    kind: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    if failed.status == 429:
        kind = "rate_limit_error"
    else:
        kind = "invalid_request_error" if failed.status < 500 else "server_error"
    detail = ErrorDetail(message=failed.message, type=kind, param=failed.param, code=failed.code)
    return Reply(failed.status, msgspec.json.encode(ErrorAnswer(error=detail)), failed.headers)
