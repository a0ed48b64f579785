"""Errors as OpenAI's clients expect them."""

from __future__ import annotations

import msgspec
import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.ivy.errors import ErrorAnswer, HttpError, error_reply

STATUS = {
    ErrorCode.INVALID_INPUT: (400, "invalid_request_error"),
    ErrorCode.MODEL_NOT_FOUND: (404, "invalid_request_error"),
    ErrorCode.TOO_LARGE: (413, "invalid_request_error"),
    ErrorCode.OVERLOADED: (429, "rate_limit_error"),
    ErrorCode.CANCELLED: (499, "invalid_request_error"),
    ErrorCode.INTERNAL: (500, "server_error"),
    ErrorCode.UNAVAILABLE: (503, "server_error"),
    ErrorCode.DEADLINE_EXCEEDED: (504, "server_error"),
}


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_has_its_status_and_type(code):
    reply = error_reply(HotbedError(code, "why", param="input[3]"))
    error = msgspec.json.decode(reply.body, type=ErrorAnswer).error
    assert (reply.status, error.type) == STATUS[code]
    assert (error.message, error.param, error.code) == ("why", "input[3]", code.value)


@pytest.mark.parametrize(("seconds", "header"), [(0.05, b"1"), (1.0, b"1"), (2.1, b"3")])
def test_retry_after_is_rounded_up_to_whole_seconds(seconds, header):
    reply = error_reply(HotbedError(ErrorCode.OVERLOADED, "why", retry_after_s=seconds))
    assert dict(reply.headers)[b"retry-after"] == header


def test_without_a_hint_there_is_no_retry_after():
    assert b"retry-after" not in dict(error_reply(HotbedError(ErrorCode.INTERNAL, "why")).headers)


def test_http_errors_bring_their_own_headers():
    reply = error_reply(HttpError(405, "method_not_allowed", "why", ((b"allow", b"GET"),)))
    assert reply.status == 405
    assert dict(reply.headers)[b"allow"] == b"GET"
    assert msgspec.json.decode(reply.body, type=ErrorAnswer).error.param is None
