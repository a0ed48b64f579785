"""What a dialect says of each of its routes; the application and the OpenAPI document read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hotbed.core.errors import HotbedError
from hotbed.ivy.errors import ErrorAnswer, HttpError, error_reply
from hotbed.ivy.http import Reply
from hotbed.ivy.work import Answer


@dataclass(frozen=True, kw_only=True)
class Route:
    """One path to which work is posted.

    Attributes:
        path: its name in metrics and in the OpenAPI document.
        aliases: more paths for the same; with and without a trailing slash is a matter of course.
        operation: OpenAPI's operationId.
        summary: one sentence.
        answer: does the work.
        body: struct that the body is read into.
        reply: type of the answer's JSON.
        error_reply: the dialect's form of an error.
        error: type of that form.
    """

    path: str
    operation: str
    summary: str
    answer: Answer
    body: Any
    reply: Any
    aliases: tuple[str, ...] = ()
    error_reply: Callable[[HotbedError | HttpError], Reply] = field(default=error_reply)
    error: Any = ErrorAnswer
