"""What an endpoint says when it gives no rows."""

from __future__ import annotations

import email.utils
import time

import httpx
import orjson

from hotbed.core.errors import ErrorCode, HotbedError

_LONGEST_BY_DATE_S = 900.0
"""A date that is further away tells of a clock that is wrong, here or there."""


def index_of(error: HotbedError) -> int | None:
    """The input that an error speaks of."""
    param = error.param or ""
    digits = param.removeprefix("input[").removesuffix("]")
    return int(digits) if digits.isdecimal() and param != digits else None


def blames_input(answer: httpx.Response) -> bool:
    """Whether it is one text's fault: a row that is not finite is none either the next time."""
    return (
        answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR
        and index_of(refusal(answer)) is not None
    )


def refusal(answer: httpx.Response) -> HotbedError:
    """The error that it holds; of a status without a code of its own INVALID_INPUT."""
    try:
        error = orjson.loads(answer.content)["error"]
        message, param = str(error["message"]), error.get("param")
    except (orjson.JSONDecodeError, KeyError, TypeError):
        message, param = f"the endpoint answered with status {answer.status_code}", None
    codes = {413: ErrorCode.TOO_LARGE, 500: ErrorCode.INTERNAL}
    code = codes.get(answer.status_code, ErrorCode.INVALID_INPUT)
    return HotbedError(code, message, param=param)


def retry_after_s(answer: httpx.Response) -> float:
    """Of both forms (RFC 9110, 10.2.3): seconds, or a date, which proxies may send."""
    value = answer.headers.get("retry-after", "")
    if value.isdecimal():
        return float(value)
    try:
        at = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    return min(max(0.0, at.timestamp() - time.time()), _LONGEST_BY_DATE_S)
