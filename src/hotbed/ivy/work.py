"""The door through which all requests that make work come: limits, the body, its time."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hotbed.core.errors import ErrorCode, HotbedError, invalid
from hotbed.ivy.body import check_values
from hotbed.ivy.caller import Caller, Tenants
from hotbed.ivy.errors import HttpError
from hotbed.ivy.http import BodyBudget, Receive, Reply, decompress, read_body
from hotbed.ivy.interrupt import Interrupt
from hotbed.ivy.metrics import Metrics
from hotbed.ivy.settings import IvySettings
from hotbed.ivy.shares import Shares

_TIMEOUT_HEADER = b"x-request-timeout-ms"


@dataclass(slots=True)
class Call:
    """One request whose body is there.

    Attributes:
        body: plain JSON bytes.
        headers: of the request, names in lower case.
        start: `time.perf_counter()` at its arrival; uvloop's own clock has whole milliseconds.
        caller: who asks, and until when.
        read_at: when the body was there, on the same clock.
        is_traced: whether spans are made of it.
        parsed_at: when it was understood, set by `parsed`.
        computed_at: when the result was there, set by `computed`.
    """

    body: bytes
    headers: dict[bytes, bytes]
    start: float
    caller: Caller
    read_at: float
    is_traced: bool = False
    parsed_at: float = 0.0
    computed_at: float = 0.0

    def parsed(self, metrics: Metrics) -> None:
        """The request is understood; what follows is tokenising."""
        self.parsed_at = time.perf_counter()
        metrics.parse_seconds.observe(self.parsed_at - self.read_at)

    def computed(self) -> None:
        """The result is there; what follows is writing it."""
        self.computed_at = time.perf_counter()


Answer = Callable[[Call], Awaitable[Reply]]


class WorkDoor:
    """Admits requests, at most so many and so many body bytes at a time in this process.

    One tenant can hold at most seven eighths of the places.
    """

    def __init__(self, settings: IvySettings, metrics: Metrics) -> None:
        self._settings = settings
        self._places = Shares(settings.max_requests_in_flight)
        self._tenants = Tenants(settings.tenant_header, by_key=settings.api_keys_file is not None)
        metrics.watch_in_flight(lambda: self.num_in_flight)
        self.budget = BodyBudget(settings.max_pending_body_bytes)
        self._unzip = ThreadPoolExecutor(1, thread_name_prefix="unzip")

    @property
    def num_in_flight(self) -> int:
        """Requests being worked on."""
        return self._places.num_taken

    def close(self) -> None:
        self._unzip.shutdown(cancel_futures=True)

    async def run(self, headers: dict[bytes, bytes], receive: Receive, answer: Answer) -> Reply:
        """What `answer` gives for the request; cancelled when time runs out or the client leaves.

        Raises:
            HotbedError, HttpError: see `hotbed.ivy.errors`.
        """
        _check_content_type(headers.get(b"content-type"))
        encoding = _content_encoding(headers.get(b"content-encoding"))
        start = time.perf_counter()
        deadline = asyncio.get_running_loop().time() + self._timeout_s(headers.get(_TIMEOUT_HEADER))
        caller = Caller(deadline, self._tenants.of(headers))
        if not self._places.take(caller.tenant):
            raise HotbedError(
                ErrorCode.OVERLOADED,
                f"{self.num_in_flight} requests are in flight in this gateway, its limit. "
                "Try again later.",
                retry_after_s=1.0,
            )
        held_bytes = 0
        try:
            with Interrupt(receive, deadline) as interrupt:
                body = await read_body(
                    receive,
                    headers,
                    max_bytes=self._settings.max_body_bytes,
                    budget=self.budget,
                )
                held_bytes = len(body)
                interrupt.body_read()
                if encoding is not None:
                    body = await self._decompress(body, encoding)
                    self.budget.take(len(body))
                    held_bytes += len(body)
                check_values(body, self._settings.max_request_tokens)
                call = Call(
                    body, headers, start, caller, time.perf_counter(), self._settings.traces
                )
                return await answer(call)
        finally:
            self._places.give_back(caller.tenant)
            self.budget.give_back(held_bytes)

    async def _decompress(self, body: bytes, encoding: bytes) -> bytes:
        unzip = functools.partial(
            decompress, body, encoding, max_bytes=self._settings.max_body_bytes
        )
        return await asyncio.get_running_loop().run_in_executor(self._unzip, unzip)

    def _timeout_s(self, asked: bytes | None) -> float:
        if asked is None:
            return self._settings.request_timeout_s
        if not asked.isdigit() or len(asked) > 9 or int(asked) == 0:
            raise invalid(
                "The header x-request-timeout-ms must be a whole number of milliseconds above 0."
            )
        return min(int(asked) / 1000, self._settings.max_request_timeout_s)


def _check_content_type(value: bytes | None) -> None:
    if value is not None and value.partition(b";")[0].strip().lower() == b"application/json":
        return
    got = "there is none" if not value else f"it is {value[:64].decode('latin-1')!r}"
    raise HttpError(
        415,
        "unsupported_media_type",
        f"The header Content-Type must be application/json; {got}. With curl add "
        "-H 'Content-Type: application/json'.",
    )


def _content_encoding(value: bytes | None) -> bytes | None:
    """``gzip``, ``deflate``, or None for a plain body."""
    if value is None:
        return None
    name = value.strip().lower()
    if name in (b"", b"identity"):
        return None
    if name == b"x-gzip":
        return b"gzip"
    if name in (b"gzip", b"deflate"):
        return name
    raise HttpError(
        415,
        "unsupported_media_type",
        f"Content-Encoding {value[:64].decode('latin-1')!r} is not supported; send the body plain "
        "or as gzip or deflate.",
        # RFC 9110, 12.5.3.
        ((b"accept-encoding", b"gzip, deflate"),),
    )
