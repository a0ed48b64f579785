"""A system with one model, running: in its process, or as a server that client processes ask."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hotbed.bench.adapters.protocol import Spec
from hotbed.bench.cells import Cell
from hotbed.bench.clients import Clients, Requests, Sample, as_json
from hotbed.bench.expected import Expected
from hotbed.bench.process import NoAnswerError, Process, SystemFailedError, Worker, remaining
from hotbed.bench.servers import Server
from hotbed.bench.service import wait_until_ready

# Of small requests, as engines may run the first ones of a size eagerly; a large one fills many
# steps of one size by itself.
_WARM_UP_REQUESTS = 3
_LARGE_TOKENS = 65_536
_END_TIMEOUT_S = 20.0
_LAST_MOMENT_S = 0.3


class Member(Protocol):
    """One running system with one model, asked in one of the ways of `hotbed.bench.cells`."""

    system: str
    ways: frozenset[str]
    settings: str

    def wait_until_ready(self, deadline: float) -> None:
        """Return when it is loaded; `deadline` is on the monotonic clock."""
        ...

    def rows(self, way: str, requests: Requests) -> NDArray[np.float32]:
        """Rows of all requests, one below the other."""
        ...

    def give(self, cell: Cell, requests: Requests, expected: Expected) -> None:
        """Hand over a cell's requests and what their rows must be."""
        ...

    def warm_up(self, cell: Cell, seconds: float) -> None:
        """Run untimed for a while; a few requests at least."""
        ...

    def run(self, cell: Cell, seconds: float, most: int) -> Sample:
        """Run until the time is over, or `most` requests are sent; then look at all rows.

        Raises:
            SystemFailedError: it failed, or a row is not what it must be.
        """
        ...

    def log_tail(self) -> tuple[str, ...]:
        """The last lines of its logs."""
        ...

    def close(self) -> None:
        """End its processes."""
        ...


class OfflineMember:
    """In a process of its own, without a server."""

    def __init__(
        self,
        system: str,
        *,
        python: str,
        adapter: str,
        spec: Spec,
        environment: Mapping[str, str],
        log: Path,
        call_timeout_s: float,
    ) -> None:
        self.system = system
        self.ways = frozenset({"offline"})
        self.settings = ""
        self._call_timeout_s = call_timeout_s
        arguments = [adapter, json.dumps(dataclasses.asdict(spec))]
        self._worker = Worker(python, "hotbed.bench.worker", arguments, environment, log)

    def wait_until_ready(self, deadline: float) -> None:
        self.settings = self._worker.wait_until_ready(remaining(deadline))["settings"]

    def rows(self, way: str, requests: Requests) -> NDArray[np.float32]:
        self._give(requests, None)
        return self._worker.rows(self._call_timeout_s)

    def give(self, cell: Cell, requests: Requests, expected: Expected) -> None:
        self._give(requests, expected)

    def warm_up(self, cell: Cell, seconds: float) -> None:
        message = {"do": "warm-up", "seconds": seconds, "least": _warm_up_requests(cell)}
        self._worker.ask(message, seconds + self._call_timeout_s)

    def run(self, cell: Cell, seconds: float, most: int) -> Sample:
        message = {"do": "time", "seconds": seconds, "most": most}
        times = self._worker.ask(message, seconds + self._call_timeout_s)["seconds"]
        return Sample(times, sum(times))

    def log_tail(self) -> tuple[str, ...]:
        return tuple(self._worker.process.log_tail())

    def close(self) -> None:
        self._worker.close()

    def _give(self, requests: Requests, expected: Expected | None) -> None:
        message = {
            "do": "inputs",
            "requests": as_json(requests),
            "expected": None if expected is None else expected.as_json(),
        }
        self._worker.ask(message, self._call_timeout_s)


class ServiceMember:
    """Its own server, asked by the client processes."""

    def __init__(
        self,
        system: str,
        server: Server,
        *,
        clients: Clients,
        environment: Mapping[str, str],
        log: Path,
        call_timeout_s: float,
    ) -> None:
        self.system = system
        self.ways = frozenset(server.ways)
        self.settings = server.settings
        self._server = server
        self._clients = clients
        self._call_timeout_s = call_timeout_s
        self._processes = [
            # What the user sets comes first.
            Process(command, {**server.environment, **environment}, _numbered(log, i))
            for i, command in enumerate(server.commands)
        ]

    def wait_until_ready(self, deadline: float) -> None:
        try:
            wait_until_ready(
                self._server.url + self._server.ready,
                self._has_ended,
                timeout_s=remaining(deadline),
            )
        except RuntimeError as error:
            raise SystemFailedError(str(error)) from error

    def rows(self, way: str, requests: Requests) -> NDArray[np.float32]:
        return self._clients.rows(*self._server.ways[way], requests, self._call_timeout_s)

    def give(self, cell: Cell, requests: Requests, expected: Expected) -> None:
        self._clients.give(*self._server.ways[cell.way], requests, expected)

    def warm_up(self, cell: Cell, seconds: float) -> None:
        self._run(cell, seconds, least=_warm_up_requests(cell), most=2**31)

    def run(self, cell: Cell, seconds: float, most: int) -> Sample:
        return self._run(cell, seconds, least=1, most=most)

    def log_tail(self) -> tuple[str, ...]:
        # Where one has ended, the others have nothing to say about it.
        ended = [process for process in self._processes if process.exit_code is not None]
        return tuple(line for p in ended or self._processes for line in p.log_tail())

    def close(self) -> None:
        # Gateways first: they finish what they hold while the replica still answers.
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            process.wait(_END_TIMEOUT_S)
            process.kill()
        if self._server.folder is not None:
            shutil.rmtree(self._server.folder, ignore_errors=True)

    def _run(self, cell: Cell, seconds: float, *, least: int, most: int) -> Sample:
        self._check_alive()
        try:
            return self._clients.run(
                self._server.ways[cell.way][1],
                cell.concurrency,
                seconds,
                least,
                most,
                timeout_s=self._call_timeout_s,
            )
        except SystemFailedError:
            # A connection breaks a moment before the process behind it is gone.
            self._check_alive(_LAST_MOMENT_S)
            raise

    def _check_alive(self, wait_s: float = 0.0) -> None:
        if any(process.wait(wait_s) is not None for process in self._processes):
            codes = [p.exit_code for p in self._processes]
            raise NoAnswerError(f"a process of the server ended; exit codes: {codes}")

    def _has_ended(self) -> bool:
        return any(process.exit_code is not None for process in self._processes)


def _warm_up_requests(cell: Cell) -> int:
    """Of each client, at least."""
    is_large = cell.n * cell.tokens * cell.concurrency > _LARGE_TOKENS
    return 1 if is_large else _WARM_UP_REQUESTS


def _numbered(log: Path, index: int) -> Path:
    return log.with_name(f"{log.stem}-{index}{log.suffix}") if index else log
