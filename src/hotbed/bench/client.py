"""One client process: sends requests over HTTP or gRPC when told to, and says how long each took.

Messages are those of `hotbed.bench.worker`. Several clients start at the same moment: a time of
the machine's monotonic clock.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from hotbed.bench.expected import Expected
from hotbed.bench.worker import serve_messages
from hotbed.core.ragged import RaggedBatch
from hotbed.wire.client import TulipClient

MODEL = "bench"
"""Name under which servers are started."""
_PATH = "/v1/embeddings"
_MODELS_PATH = "/v1/models"
_LIST_TIMEOUT_S = 10.0
_SHOWN_BYTES = 300


def main(argv: list[str]) -> None:
    """`argv`: the pipe's file descriptor."""
    serve_messages(Connection(int(argv[0])), Client)


class Client:
    """The requests it was given for each address; servers are asked in turn."""

    def __init__(self) -> None:
        self._targets: dict[str, Http | Grpc] = {}
        self._expected: dict[str, Expected | None] = {}

    def handle(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer to one message."""
        what, address = message["do"], message["address"]
        if what == "inputs":
            kind = Grpc if message["kind"] == "grpc" else Http
            self._targets[address] = kind(message["kind"], address, message["requests"])
            expected = message["expected"]
            self._expected[address] = None if expected is None else Expected.from_json(expected)
            return {"count": len(message["requests"])}
        target = self._targets[address]
        if what == "rows":
            rows = target.rows(message["timeout_s"])
            return {"shape": rows.shape, "rows": base64.b64encode(rows.tobytes()).decode()}
        if what == "run":
            expected = self._expected[address]
            assert expected is not None, "bug: inputs that are timed come with their rows"
            load = Load(**message["load"])
            answers = target.run(load)
            expected.check((answer.index, target.rows_of(answer.content)) for answer in answers)
            return {
                "seconds": [answer.seconds for answer in answers],
                "begin": load.start_at,
                "end": max((answer.end for answer in answers), default=load.start_at),
            }
        raise ValueError(f"unknown message {what!r}")


class Load:
    """How requests are sent.

    Args:
        concurrency: under way at a time, of this client.
        seconds: no request begins after so long.
        least: requests at least.
        most: requests at most.
        first: index of the request to begin with.
        start_at: on the monotonic clock.
        timeout_s: for one answer.
    """

    def __init__(
        self,
        *,
        concurrency: int,
        seconds: float,
        least: int,
        most: int,
        first: int,
        start_at: float,
        timeout_s: float,
    ) -> None:
        self.concurrency = concurrency
        self.least = least
        self.most = most
        self.start_at = start_at
        self.timeout_s = timeout_s
        self._end = start_at + seconds
        self._next = first
        self._first = first
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """Index of the next request; None when it is time to stop."""
        with self._lock:
            begun = self._next - self._first
            if begun >= self.least and (begun >= self.most or time.monotonic() >= self._end):
                return None
            self._next += 1
            return self._next - 1


@dataclass(frozen=True, slots=True)
class Answer:
    """One request's; its rows are looked at when all is timed.

    Attributes:
        index: of the request.
        seconds: until it was there.
        end: when, on the monotonic clock.
        content: as it came.
    """

    index: int
    seconds: float
    end: float
    content: Any


class Http:
    """OpenAI's route for embeddings: texts, or token ids where the server takes them."""

    def __init__(self, kind: str, url: str, requests: Sequence[Any]) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        column = 1 if kind == "http-ids" else 0
        model = _served_name(self._host, self._port)
        self._requests = [
            json.dumps(
                {
                    "model": model,
                    "input": [item[column] for item in request],
                    "encoding_format": "base64",
                }
            ).encode()
            for request in requests
        ]

    def rows(self, timeout_s: float) -> NDArray[np.float32]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        found = [self.rows_of(_ask(connection, body)) for body in self._requests]
        connection.close()
        return np.concatenate(found)

    @staticmethod
    def rows_of(content: bytes) -> NDArray[np.float32]:
        """[inputs, dimensions] of an answer's body, in the order of the inputs.

        Raises:
            ValueError: its indexes are not those of its rows.
        """
        data = sorted(json.loads(content)["data"], key=lambda row: row["index"])
        if [row["index"] for row in data] != list(range(len(data))):
            raise ValueError(f"{len(data)} rows came back with indexes that are not theirs")
        found = [
            np.frombuffer(base64.b64decode(row["embedding"]), "<f4")
            if isinstance(row["embedding"], str)
            else np.array(row["embedding"], dtype=np.float32)
            for row in data
        ]
        return np.stack(found) if found else np.zeros((0, 0), np.float32)

    def run(self, load: Load) -> list[Answer]:
        answers: list[Answer] = []
        failures: list[Exception] = []

        def send() -> None:
            try:
                connection = http.client.HTTPConnection(
                    self._host, self._port, timeout=load.timeout_s
                )
                connection.connect()
                time.sleep(max(0.0, load.start_at - time.monotonic()))
                while not failures and (index := load.take()) is not None:
                    body = self._requests[index % len(self._requests)]
                    start = time.perf_counter()
                    content = _ask(connection, body)
                    seconds = time.perf_counter() - start
                    answers.append(Answer(index, seconds, time.monotonic(), content))
                connection.close()
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=send) for _ in range(load.concurrency)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return answers


def _served_name(host: str, port: int) -> str:
    """The first that the server lists: one that ran already has a name of its own. Some list none
    and take any.
    """
    connection = http.client.HTTPConnection(host, port, timeout=_LIST_TIMEOUT_S)
    try:
        connection.request("GET", _MODELS_PATH)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != HTTPStatus.OK:
            return MODEL
        return str(json.loads(content)["data"][0]["id"])
    except (KeyError, IndexError, TypeError, ValueError):
        return MODEL
    finally:
        connection.close()


def _ask(connection: http.client.HTTPConnection, body: bytes) -> bytes:
    connection.request("POST", _PATH, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != HTTPStatus.OK:
        raise ValueError(f"HTTP {answer.status}: {content[:_SHOWN_BYTES]!r}")
    return content


class Grpc:
    """Hotbed's replica: token ids, without a gateway."""

    def __init__(self, kind: str, address: str, requests: Sequence[Any]) -> None:
        self._address = address
        self._requests = [
            RaggedBatch.from_sequences([item[1] for item in request]) for request in requests
        ]

    def rows(self, timeout_s: float) -> NDArray[np.float32]:
        async def ask_all() -> NDArray[np.float32]:
            async with TulipClient(self._address) as client:
                return np.concatenate([await _embed(client, b, timeout_s) for b in self._requests])

        return asyncio.run(ask_all())

    @staticmethod
    def rows_of(content: NDArray[Any]) -> NDArray[Any]:
        """The client's own rows."""
        return content

    def run(self, load: Load) -> list[Answer]:
        answers: list[Answer] = []

        async def send(client: TulipClient) -> None:
            await asyncio.sleep(max(0.0, load.start_at - time.monotonic()))
            while (index := load.take()) is not None:
                batch = self._requests[index % len(self._requests)]
                start = time.perf_counter()
                rows = await _embed(client, batch, load.timeout_s)
                seconds = time.perf_counter() - start
                answers.append(Answer(index, seconds, time.monotonic(), rows))

        async def send_all() -> None:
            async with TulipClient(self._address) as client:
                await client.info(timeout_s=load.timeout_s)  # connects
                await asyncio.gather(*(send(client) for _ in range(load.concurrency)))

        asyncio.run(send_all())
        return answers


async def _embed(client: TulipClient, batch: RaggedBatch, timeout_s: float) -> NDArray[Any]:
    return (await client.embed(batch, timeout_s=timeout_s)).rows


if __name__ == "__main__":
    main(sys.argv[1:])
