"""What is at each path: the entries of the application's table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hotbed.core.errors import HotbedError
from hotbed.ivy.errors import HttpError, error_reply
from hotbed.ivy.histograms import Series
from hotbed.ivy.http import Receive, Reply

Handler = Callable[[dict[bytes, bytes], Receive], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Entry:
    """What one path has for one method.

    Attributes:
        name: the route's, for metrics.
        handler: answers.
        error_reply: the dialect's form of an error.
        seconds: where the time of an answered request is noted; None if it makes no work.
        is_open: needs no API key.
    """

    name: str
    handler: Handler
    error_reply: Callable[[HotbedError | HttpError], Reply] = error_reply
    seconds: Series | None = None
    is_open: bool = False


Methods = dict[str, Entry]
"""By HTTP method; never empty."""


def reading(
    name: str, answer: Callable[[], Reply | Awaitable[Reply]], *, is_open: bool = False
) -> Methods:
    """A route that only reads; for HEAD the server leaves the body out."""

    async def handler(headers: dict[bytes, bytes], receive: Receive) -> Reply:
        reply = answer()
        return reply if isinstance(reply, Reply) else await reply

    entry = Entry(name, handler, is_open=is_open)
    return {"GET": entry, "HEAD": entry}


async def nothing(headers: dict[bytes, bytes], receive: Receive) -> Reply:
    """Handler of what is at no path; never called."""
    raise AssertionError("there is no route: this is a bug")
