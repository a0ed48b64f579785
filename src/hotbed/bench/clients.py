"""The client processes that ask the servers: the same ones for all systems."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotbed.bench.expected import Expected
from hotbed.bench.inputs import Text
from hotbed.bench.process import NoAnswerError, SystemFailedError, Worker, remaining
from hotbed.bench.servers import ClientKind

_START_DELAY_S = 0.1
_GRACE_S = 30.0

Requests = Sequence[Sequence[Text]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One turn: seconds of each request, and from the first one's begin to the last one's end."""

    seconds: list[float]
    wall_s: float


def as_json(requests: Requests) -> list[list[list[Any]]]:
    """Requests in the form of the messages to workers and clients."""
    return [[[text.text, list(text.ids)] for text in request] for request in requests]


class Clients:
    """The client processes, the same ones for all systems."""

    def __init__(self, count: int, make: Callable[[int], Worker]) -> None:
        self._make = make
        self._workers = [make(i) for i in range(count)]
        self._given: dict[str, tuple[ClientKind, Requests, Expected]] = {}

    def wait_until_ready(self, deadline: float) -> None:
        """Return when all can be used."""
        for worker in self._workers:
            worker.wait_until_ready(remaining(deadline))

    def rows(
        self, kind: ClientKind, address: str, requests: Requests, timeout_s: float
    ) -> NDArray[np.float32]:
        """Rows of all requests, asked by the first client.

        Raises:
            SystemFailedError: one was not answered, or not in time.
        """
        self._give(self._workers[0], kind, address, requests, None)
        try:
            return self._workers[0].rows(timeout_s, address=address)
        except NoAnswerError:
            self._replace(0)  # it may wait for this server while others are to be asked
            raise

    def give(self, kind: ClientKind, address: str, requests: Requests, expected: Expected) -> None:
        """Hand every client all requests, and what their rows must be."""
        self._given[address] = (kind, requests, expected)
        for worker in self._workers:
            self._give(worker, kind, address, requests, expected)

    def run(
        self,
        address: str,
        concurrency: int,
        seconds: float,
        least: int,
        most: int,
        *,
        timeout_s: float,
    ) -> Sample:
        """Send the requests handed over for this address, `concurrency` under way at a time over
        all clients.

        Raises:
            SystemFailedError: one was not answered, or not in time, or an answer is wrong.
        """
        shares = [concurrency // len(self._workers)] * len(self._workers)
        for i in range(concurrency % len(self._workers)):
            shares[i] += 1
        num_busy = sum(share > 0 for share in shares)
        start_at = time.monotonic() + _START_DELAY_S
        limit = seconds + timeout_s + _GRACE_S
        answers: list[dict[str, Any]] = []
        failures: list[SystemFailedError] = []

        def attempt(index: int, work: Callable[[Worker], None]) -> bool:
            try:
                work(self._workers[index])
            except SystemFailedError as error:
                failures.append(error)
                if isinstance(error, NoAnswerError):
                    self._replace(index)
                return False
            return True

        sent = []
        for index, share in enumerate(shares):
            load = {
                "concurrency": share,
                "seconds": seconds,
                "least": max(least, share),
                "most": max(1, most // num_busy),
                "first": index,
                "start_at": start_at,
                "timeout_s": timeout_s,
            }
            message = {"do": "run", "address": address, "load": load}
            if share and attempt(index, functools.partial(Worker.send, message=message)):
                sent.append(index)
        for index in sent:
            attempt(index, lambda worker: answers.append(worker.receive("run", limit)))
        if failures:
            raise failures[0]
        begin = min(answer["begin"] for answer in answers)
        end = max(answer["end"] for answer in answers)
        return Sample([s for answer in answers for s in answer["seconds"]], end - begin)

    def _replace(self, index: int) -> None:
        """Put a client in the place of one that does not answer, with the same requests."""
        self._workers[index].process.kill()
        made = self._make(index)
        made.wait_until_ready(_GRACE_S)
        for address, (kind, requests, expected) in self._given.items():
            self._give(made, kind, address, requests, expected)
        self._workers[index] = made

    def close(self) -> None:
        """End them."""
        for worker in self._workers:
            worker.close()

    @staticmethod
    def _give(
        worker: Worker,
        kind: ClientKind,
        address: str,
        requests: Requests,
        expected: Expected | None,
    ) -> None:
        message = {
            "do": "inputs",
            "kind": kind,
            "address": address,
            "requests": as_json(requests),
            "expected": None if expected is None else expected.as_json(),
        }
        worker.ask(message, _GRACE_S)
