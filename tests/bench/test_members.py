"""The client processes are shared by all servers; each server must be asked in its own turns."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from hotbed.bench.cells import Cell
from hotbed.bench.clients import Clients
from hotbed.bench.expected import Expected
from hotbed.bench.inputs import Text
from hotbed.bench.measure import Pace, measure_cell
from hotbed.bench.members import ServiceMember
from hotbed.bench.process import NoAnswerError, Worker
from hotbed.bench.servers import running

CELL = Cell("concurrency", "http", 1, 4, 2)
EXPECTED = Expected.of("embed", np.ones((1, 1), np.float32), [1])


class Counting(ThreadingHTTPServer):
    """Answers every request with one row, and counts."""

    def __init__(self) -> None:
        self.count = 0
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                owner.count += 1
                body = json.dumps({"data": [{"index": 0, "embedding": [1.0]}]}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def servers() -> Iterator[tuple[Counting, Counting]]:
    made = Counting(), Counting()
    threads = [threading.Thread(target=server.serve_forever) for server in made]
    for thread in threads:
        thread.start()
    yield made
    for server, thread in zip(made, threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


def test_each_server_is_asked_in_its_own_turns(
    servers: tuple[Counting, Counting], tmp_path: Path
) -> None:
    def client(index: int) -> Worker:
        log = tmp_path / f"client-{index}.log"
        return Worker(sys.executable, "hotbed.bench.client", [], os.environ, log)

    clients = Clients(2, client)
    try:
        clients.wait_until_ready(time.monotonic() + 60)
        members = {
            str(i): ServiceMember(
                str(i),
                running(server.url),
                clients=clients,
                environment={},
                log=tmp_path / f"{i}.log",
                call_timeout_s=20,
            )
            for i, server in enumerate(servers)
        }
        pace = Pace(seconds=0.2, rounds=2, requests=12, warm_up_s=0.0)
        requests = [[Text("a text", (1, 2))]]
        outcomes = measure_cell(CELL, requests, members, dict.fromkeys(members, EXPECTED), pace)
    finally:
        clients.close()
    assert [outcome.error for outcome in outcomes.values()] == [None, None]
    warm_up = 3 * 2  # requests of each client at least
    for name, server in zip(members, servers, strict=True):
        timed = sum(len(sample.seconds) for sample in outcomes[name].samples)
        assert timed > 0
        assert server.count == timed + warm_up


def test_a_client_that_ended_is_made_anew_with_every_servers_requests(
    servers: tuple[Counting, Counting], tmp_path: Path
) -> None:
    made: list[Worker] = []

    def client(index: int) -> Worker:
        log = tmp_path / f"client-{index}.log"
        made.append(Worker(sys.executable, "hotbed.bench.client", [], os.environ, log))
        return made[-1]

    clients = Clients(1, client)
    try:
        clients.wait_until_ready(time.monotonic() + 60)
        for server in servers:
            clients.give("http-texts", server.url, [[Text("a text", (1, 2))]], EXPECTED)
        made[0].process.kill()
        with pytest.raises(NoAnswerError):
            clients.run(servers[0].url, 1, 0.0, 1, 1, timeout_s=5)
        samples = [clients.run(server.url, 1, 0.0, 1, 1, timeout_s=5) for server in servers]
    finally:
        clients.close()
    assert [len(sample.seconds) for sample in samples] == [1, 1]
    assert [server.count for server in servers] == [1, 1]
