"""POST /v1/embeddings: from the HTTP request to the answer."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from hotbed.core.errors import ErrorCode, HotbedError, invalid
from hotbed.ivy.embed import EmbedPipeline
from hotbed.ivy.errors import HttpError
from hotbed.ivy.http import (
    JSON_TYPE,
    BodyBudget,
    Receive,
    Reply,
    decompress,
    read_body,
)
from hotbed.ivy.interrupt import Interrupt
from hotbed.ivy.metrics import Metrics
from hotbed.ivy.openai import decode_request, encode_answer
from hotbed.ivy.request import EmbedResult
from hotbed.ivy.score import ScoreResult
from hotbed.ivy.settings import IvySettings

_TIMEOUT_HEADER = b"x-request-timeout-ms"


AnswerBody = Callable[[bytes, float, float], Awaitable[Reply]]
"""(plain JSON body, `time.perf_counter` at the request's arrival, its deadline) to the reply."""


class EmbeddingsRoute:
    """The route's handler."""

    def __init__(
        self,
        pipeline: EmbedPipeline,
        *,
        names: Sequence[str],
        settings: IvySettings,
        metrics: Metrics,
    ) -> None:
        self._pipeline = pipeline
        self._names = names
        self._settings = settings
        self._metrics = metrics
        self._num_in_flight = 0
        self._budget = BodyBudget(settings.max_pending_body_bytes)
        self._unzip = ThreadPoolExecutor(1, thread_name_prefix="unzip")

    def close(self) -> None:
        self._unzip.shutdown(cancel_futures=True)

    async def post(self, headers: dict[bytes, bytes], receive: Receive) -> Reply:
        """The answer to an embeddings request."""
        return await self.run(headers, receive, self._answer)

    async def run(self, headers: dict[bytes, bytes], receive: Receive, answer: AnswerBody) -> Reply:
        """What `answer` makes of the body; cancelled when time runs out or the client leaves.

        Raises:
            HotbedError, HttpError: see `hotbed.ivy.errors`.
        """
        _check_content_type(headers.get(b"content-type"))
        encoding = _content_encoding(headers.get(b"content-encoding"))
        start = time.perf_counter()  # uvloop's own clock has whole milliseconds
        deadline = asyncio.get_running_loop().time() + self._timeout_s(headers.get(_TIMEOUT_HEADER))
        if self._num_in_flight >= self._settings.max_requests_in_flight:
            raise HotbedError(
                ErrorCode.OVERLOADED,
                f"{self._num_in_flight} requests are in flight in this gateway, its limit. "
                "Try again later.",
                retry_after_s=1.0,
            )
        self._num_in_flight += 1
        self._metrics.requests_in_flight.set(self._num_in_flight)
        held_bytes = 0
        try:
            with Interrupt(receive, deadline) as interrupt:
                body = await read_body(
                    receive,
                    headers,
                    max_bytes=self._settings.max_body_bytes,
                    budget=self._budget,
                )
                held_bytes = len(body)
                interrupt.body_read()
                if encoding is not None:
                    body = await self._decompress(body, encoding)
                    self._budget.take(len(body))
                    held_bytes += len(body)
                return await answer(body, start, deadline)
        finally:
            self._num_in_flight -= 1
            self._metrics.requests_in_flight.set(self._num_in_flight)
            self._budget.give_back(held_bytes)

    async def _answer(self, body: bytes, start: float, deadline: float) -> Reply:
        request, encoding = decode_request(
            body, names=self._names, max_inputs=self._settings.max_inputs
        )
        result = await self._pipeline.run(request, deadline)
        answer = await encode_answer(result, encoding, self._names[0])
        total_s = time.perf_counter() - start
        self._metrics.request_seconds.observe(total_s)
        return Reply(200, answer, answer_headers(result, total_s))

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


def answer_headers(
    result: EmbedResult | ScoreResult, total_s: float
) -> tuple[tuple[bytes, bytes], ...]:
    """Headers of an answer of status 200; `total_s` is the time since the request came."""
    timing = (
        f"tokenize;dur={result.tokenize_us / 1000:.3f}, queue;dur={result.queue_us / 1000:.3f}, "
        f"device;dur={result.device_us / 1000:.3f}, total;dur={total_s * 1000:.3f}"
    )
    return (
        JSON_TYPE,
        (b"x-hotbed-fingerprint", result.fingerprint.encode()),
        (b"server-timing", timing.encode()),
    )


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
