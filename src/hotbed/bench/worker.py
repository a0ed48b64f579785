"""The process of one system and one model: loads it, then does what the bench says on a pipe.

Messages are JSON, since the process may run under another interpreter with other versions of all
libraries. Every message has a number and gets one answer with that number; one with ``error`` is a
failure of the system. The system's own output goes to the log that the bench keeps of it.
"""

from __future__ import annotations

import base64
import importlib
import json
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np

from hotbed.bench.adapters.protocol import Adapter, Item, Spec
from hotbed.bench.expected import Expected


class Handler(Protocol):
    """What answers messages."""

    def handle(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer to one message."""
        ...


def main(argv: list[str]) -> None:
    """`argv`: the pipe's file descriptor, the adapter as module:class, the spec as JSON."""

    def load() -> Worker:
        return Worker(argv[1], Spec(**json.loads(argv[2])))

    serve_messages(Connection(int(argv[0])), load)


def serve_messages(pipe: Connection, load: Callable[[], Handler]) -> None:
    """Load, say so, and answer messages until the bench is gone; what fails is answered too."""
    try:
        handler = load()
    except BaseException as error:
        traceback.print_exc()
        _answer(pipe, 0, {"error": _in_words(error)})
        sys.exit(1)
    _answer(pipe, 0, {"settings": getattr(handler, "settings", "")})
    while True:
        try:
            message = json.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            answer = handler.handle(message)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": _in_words(error)}
        _answer(pipe, message["number"], answer)


class Worker:
    """A loaded system and the requests it was given."""

    def __init__(self, adapter: str, spec: Spec) -> None:
        module, _, name = adapter.partition(":")
        make = getattr(importlib.import_module(module), name)
        self.adapter: Adapter = make(spec)
        self.settings = self.adapter.settings
        self._requests: list[Any] = []
        self._expected: Expected | None = None

    def handle(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer to one message."""
        what = message["do"]
        if what == "inputs":
            self._requests = [
                self.adapter.prepare([Item(*item) for item in request])
                for request in message["requests"]
            ]
            expected = message["expected"]
            self._expected = None if expected is None else Expected.from_json(expected)
            return {"count": len(self._requests)}
        if what == "rows":
            return self._all_rows()
        if what == "warm-up":
            return {"seconds": self._run(message["seconds"], sys.maxsize, message["least"])}
        if what == "time":
            return {"seconds": self._run(message["seconds"], message["most"], 1)}
        raise ValueError(f"unknown message {what!r}")

    def _all_rows(self) -> dict[str, Any]:
        """Rows of all requests, one below the other."""
        parts = [
            np.ascontiguousarray(self.adapter.rows(self.adapter.embed(prepared)), dtype=np.float32)
            for prepared in self._requests
        ]
        rows = np.concatenate(parts)
        return {"shape": rows.shape, "rows": base64.b64encode(rows.tobytes()).decode()}

    def _run(self, seconds: float, most: int, least: int) -> list[float]:
        """Seconds of each call: until the time is over, but `least` at least and `most` at most.

        The rows are looked at when all is timed: nothing lies between two calls.
        """
        assert self._expected is not None, "bug: inputs that are timed come with their rows"
        times: list[float] = []
        results: list[Any] = []
        end = time.perf_counter() + seconds
        while len(times) < least or (len(times) < most and time.perf_counter() < end):
            prepared = self._requests[len(times) % len(self._requests)]
            start = time.perf_counter()
            result = self.adapter.embed(prepared)
            times.append(time.perf_counter() - start)
            results.append(result)
        self._expected.check((i, self.adapter.rows(result)) for i, result in enumerate(results))
        return times


def _answer(pipe: Connection, number: int, answer: dict[str, Any]) -> None:
    sys.stdout.flush()
    pipe.send_bytes(json.dumps({**answer, "number": number}).encode())


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(sys.argv[1:])
