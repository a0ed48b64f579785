"""Computes a job's windows through a running Hotbed: requests of a bounded size, a bounded number
at a time, tried again while that makes sense.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import orjson
import pybase64
from numpy.typing import NDArray

from hotbed.bulk.answers import blames_input, index_of, refusal, retry_after_s
from hotbed.bulk.backend import Done
from hotbed.bulk.block import Problem
from hotbed.bulk.daemon_pool import DaemonPool
from hotbed.bulk.policies import Counts, Policies
from hotbed.bulk.read import Window
from hotbed.bulk.recipe import Recipe
from hotbed.core.errors import ErrorCode, HotbedError, invalid

_LOG = logging.getLogger("hotbed.bulk")
_INPUTS_A_REQUEST = 256
_CHARS_A_REQUEST = 1 << 20
_WINDOWS_AHEAD = 2
_ATTEMPTS = 8
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_TIMEOUT = httpx.Timeout(600, connect=10)
_AGAIN = {429, 500, 502, 503, 504}
_FINGERPRINT = "x-hotbed-fingerprint"
_Closed = threading.Event


@dataclass(slots=True)
class _Slice:
    """Rows of a window that share a request, and what came of them."""

    places: list[int]
    rows: list[NDArray[np.float32]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    tokens: int = 0


class EndpointBackend:
    """Implements `Backend`. Rows come as float32; those of too-long texts cut at the right.

    Args:
        url: base URL, with or without ``/v1``.
        options: fields of every request: ``model``, ``input_type``, ``dimensions`` and so on.
        concurrency: requests at a time.
        transport: for tests.

    Raises:
        HotbedError: UNAVAILABLE if nothing answers there; INVALID_INPUT if it is no Hotbed, or
            refuses the options.
    """

    row_dtype: np.dtype[Any] = np.dtype("<f4")

    def __init__(
        self,
        url: str,
        options: dict[str, Any],
        *,
        concurrency: int,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise invalid(f"--endpoint must be http://... or https://..., got {url!r}", "endpoint")
        base = url.rstrip("/").removesuffix("/v1")
        self._url = f"{base}/v1/embeddings"
        self._options = {name: value for name, value in options.items() if value is not None}
        self._closed = _Closed()
        limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
        self._client = httpx.Client(timeout=_TIMEOUT, limits=limits, transport=transport)
        self._pool = DaemonPool(concurrency, name="endpoint")
        self._fingerprint: str | None = None
        rows, _ = self._ask(["hotbed"], truncate=True)
        if self._fingerprint is None:
            raise invalid(f"--endpoint {url} sends no {_FINGERPRINT}: it is no Hotbed")
        self.row_width = rows.shape[1]
        self.recipe: Recipe = Recipe(
            model=str(options["model"]),
            prompt=str(options.get("prompt_name") or options.get("input_type") or ""),
            dimensions=self.row_width,
            dtype="float32",
            normalize=options.get("normalize") is not False,
            fingerprint=self._fingerprint,
        )

    def run(
        self, windows: Iterator[Window], policies: Policies, *, text: str, dedupe: bool
    ) -> Generator[Done, None, None]:
        """See `Backend`; `dedupe` is refused by the options of a job."""
        ahead: deque[tuple[Window, list[Problem], list[Future[_Slice]]]] = deque()
        try:
            failed: Exception | None = None
            while True:
                try:
                    window = next(windows)
                    problems = [policies.located(problem) for problem in window.rows.problems]
                    futures = self._send(window, policies, text, problems)
                except StopIteration:
                    break
                except Exception as error:  # raised after the windows before it
                    failed = error
                    break
                ahead.append((window, problems, futures))
                if len(ahead) > _WINDOWS_AHEAD:
                    yield _done(*ahead.popleft())
            while ahead:
                yield _done(*ahead.popleft())
            if failed is not None:
                raise failed
        finally:
            for _, _, futures in ahead:
                for future in futures:
                    future.cancel()

    def idle_s(self) -> None:
        """See `Backend`."""
        return

    def close(self) -> None:
        """See `Backend`; requests that wait to be tried again give up, others are left alone."""
        self._closed.set()
        self._pool.close()
        self._client.close()

    def _send(
        self, window: Window, policies: Policies, text: str, problems: list[Problem]
    ) -> list[Future[_Slice]]:
        block = window.rows
        texts: list[str] = block.table.column(text).to_pylist()

        def row_of(place: int) -> int:
            return block.first_row + int(block.good[place])

        futures: list[Future[_Slice]] = []
        places: list[int] = []
        num_chars = 0
        for place, value in enumerate(texts):
            if not value or value.isspace():
                problems.append(policies.bad_row(row_of(place), "empty", "it holds no text"))
                continue
            if places and (
                len(places) == _INPUTS_A_REQUEST or num_chars + len(value) > _CHARS_A_REQUEST
            ):
                futures.append(self._pool.submit(self._embed, texts, places, policies, row_of))
                places, num_chars = [], 0
            places.append(place)
            num_chars += len(value)
        if places:
            futures.append(self._pool.submit(self._embed, texts, places, policies, row_of))
        return futures

    def _embed(
        self,
        texts: list[str],
        places: list[int],
        policies: Policies,
        row_of: Callable[[int], int],
    ) -> _Slice:
        """Embed what the server takes; rows that it refuses follow the policies."""
        rows: dict[int, NDArray[np.float32]] = {}
        made = _Slice([])
        left = list(places)
        while left:
            try:
                got, tokens = self._ask([texts[place] for place in left], truncate=False)
            except HotbedError as error:
                index = index_of(error)
                if error.code is ErrorCode.TOO_LARGE and index is None and len(left) > 1:
                    return self._embed_halves(texts, places, policies, row_of)
                if index is None or index >= len(left):
                    raise
                place = left.pop(index)
                problem = _judge(error, policies, row_of(place))
                made.problems.append(problem)
                if problem.action == "truncated":
                    got, tokens = self._ask([texts[place]], truncate=True)
                    rows[place] = got[0]
                    made.tokens += tokens
                continue
            rows |= zip(left, got, strict=True)
            made.tokens += tokens
            break
        made.places = sorted(rows)
        made.rows = [rows[place] for place in made.places]
        return made

    def _embed_halves(
        self,
        texts: list[str],
        places: list[int],
        policies: Policies,
        row_of: Callable[[int], int],
    ) -> _Slice:
        """Of a request that is larger than the server takes."""
        middle = len(places) // 2
        halves = [
            self._embed(texts, half, policies, row_of)
            for half in (places[:middle], places[middle:])
        ]
        return _Slice(
            [place for half in halves for place in half.places],
            [row for half in halves for row in half.rows],
            [problem for half in halves for problem in half.problems],
            sum(half.tokens for half in halves),
        )

    def _ask(self, texts: list[str], *, truncate: bool) -> tuple[NDArray[np.float32], int]:
        """(float32 [texts, dimensions], tokens); tries again while that makes sense."""
        body = orjson.dumps(
            self._options | {"input": texts, "encoding_format": "base64", "truncate": truncate}
        )
        pause_s = _FIRST_PAUSE_S
        for attempt in range(_ATTEMPTS):
            try:
                answer = self._client.post(
                    self._url, content=body, headers={"content-type": "application/json"}
                )
            except httpx.TransportError as error:
                said, wait_s = f"{type(error).__name__}: {error}", pause_s
            else:
                if answer.status_code == httpx.codes.OK:
                    return self._read(answer, len(texts))
                if answer.status_code not in _AGAIN or blames_input(answer):
                    raise refusal(answer)
                said = f"status {answer.status_code}"
                wait_s = max(pause_s, retry_after_s(answer))
            if attempt == 0 and not self._closed.is_set():  # closing ends requests, too
                _LOG.warning("%s does not answer (%s); trying again", self._url, said)
            if attempt + 1 < _ATTEMPTS and self._closed.wait(wait_s):
                break
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        raise HotbedError(
            ErrorCode.UNAVAILABLE, f"{self._url} did not answer {_ATTEMPTS} times; last: {said}"
        )

    def _read(self, answer: httpx.Response, num_texts: int) -> tuple[NDArray[np.float32], int]:
        fingerprint = answer.headers.get(_FINGERPRINT)
        if self._fingerprint is None:
            self._fingerprint = fingerprint
        elif fingerprint != self._fingerprint:
            raise invalid(
                f"the endpoint's vectors had fingerprint {self._fingerprint}, now {fingerprint}: "
                "its model has changed"
            )
        content = orjson.loads(answer.content)
        rows = [
            np.frombuffer(pybase64.b64decode(item["embedding"]), dtype="<f4")
            for item in sorted(content["data"], key=lambda item: item["index"])
        ]
        if len(rows) != num_texts:
            raise HotbedError(
                ErrorCode.INTERNAL, f"{self._url} gave {len(rows)} rows for {num_texts} texts"
            )
        return np.stack(rows), int(content["usage"]["prompt_tokens"])


def _judge(error: HotbedError, policies: Policies, row: int) -> Problem:
    # The server's words without the index in its request, which means nothing here.
    if error.code is ErrorCode.INTERNAL:
        detail = "the model gave a row that is not finite, or failed on this text"
        return policies.bad_row(row, "not_finite", detail)
    detail = f"the text {error.message.partition(' ')[2]}"
    if "the limit is" in error.message:
        return policies.long_text(row, detail.partition(". ")[0])
    return policies.bad_row(row, "empty", detail.rstrip("."))


def _done(window: Window, problems: list[Problem], futures: list[Future[_Slice]]) -> Done:
    slices = [future.result() for future in futures]
    take = np.array([place for made in slices for place in made.places], dtype=np.int64)
    rows = [row for made in slices for row in made.rows]
    problems = sorted(
        problems + [problem for made in slices for problem in made.problems],
        key=lambda problem: problem.row,
    )
    counts = Counts(
        read=len(window.rows.good) + len(window.rows.problems),
        written=len(rows),
        tokens=sum(made.tokens for made in slices),
    )
    for problem in problems:
        counts.add_problem(problem)
    stacked = np.stack(rows) if rows else np.empty((0, 1), dtype=np.float32)
    return Done(window, window.rows.table.take(take), None, stacked, problems, counts)
