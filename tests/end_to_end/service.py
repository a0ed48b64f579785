"""Starts the real `hotbed serve` and sends it many requests at a time, as clients would."""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psutil
from numpy.typing import NDArray

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
_WORDS = ("red", "green", "old", "young", "quick", "slow", "warm", "cold", "round", "tall")
TEXTS = [f"{a} {b}" for a, b in itertools.permutations(_WORDS, 2)]


class Service:
    """A running `hotbed serve` that has printed its start-up page."""

    def __init__(self, process: subprocess.Popen[str], base_url: str, log: Path) -> None:
        self.process = process
        self.base_url = base_url
        self._log = log

    def children(self, module: str = "hotbed.") -> list[psutil.Process]:
        """Processes that run `python -m <module>...` for it."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [c for c in children if any(w.startswith(module) for w in c.cmdline())]

    def log(self) -> str:
        return self._log.read_text()


@contextlib.contextmanager
def running(log: Path, *options: str) -> Iterator[Service]:
    """The service on a free port; killed at the end if the test has not ended it."""
    command = [sys.executable, "-m", "hotbed.cli", "serve", "--port", "0", *options]
    with (
        log.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            page = dict(line.rstrip().split(": ", 1) for line in _page(process.stdout))
            yield Service(process, page["OpenAI API"].removesuffix("/v1"), log)
        except BaseException:
            sys.stderr.write(log.read_text())  # pytest shows it with the failure
            raise
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def _page(stdout: Iterator[str]) -> Iterator[str]:
    for line in stdout:
        if ": " in line:
            yield line
        if line.startswith("try: "):
            return
    raise AssertionError("hotbed serve ended before it was ready")


@dataclass(frozen=True)
class Answer:
    """One request's fate: `status` is 0 if no HTTP answer came."""

    text: int
    status: int
    retry_after: str | None = None
    row: NDArray[np.float32] | None = None
    error: str = ""


def get(service: Service, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(service.base_url).netloc, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()


def ask(connection: http.client.HTTPConnection, text: int) -> Answer:
    body = {"model": MODEL, "input": TEXTS[text], "encoding_format": "base64"}
    try:
        connection.request(
            "POST", "/v1/embeddings", json.dumps(body), {"content-type": "application/json"}
        )
        response = connection.getresponse()
        content = response.read()
    except (OSError, http.client.HTTPException) as error:
        connection.close()  # the next request opens it again
        return Answer(text, 0, error=repr(error))
    if response.status != 200:
        retry_after = response.headers.get("retry-after")
        return Answer(text, response.status, retry_after, error=content.decode())
    row = base64.b64decode(json.loads(content)["data"][0]["embedding"])
    return Answer(text, 200, row=np.frombuffer(row, dtype="<f4"))


def load(
    service: Service,
    num_requests: int,
    *,
    concurrency: int = 16,
    after: int,
    act: Callable[[], None],
) -> list[Answer]:
    """Send requests over kept-alive connections, TEXTS in turn.

    Args:
        num_requests: in all.
        concurrency: connections, each with one request at a time.
        after: answers after which `act` is called once, while the others go on.
        act: what to do to the service.
    """
    indexes = iter(range(num_requests))
    enough = threading.Event()
    answers: list[Answer] = []

    def client() -> None:
        connection = http.client.HTTPConnection(urlsplit(service.base_url).netloc, timeout=60)
        with contextlib.closing(connection):
            for index in indexes:
                answers.append(ask(connection, index % len(TEXTS)))
                if len(answers) >= after:
                    enough.set()

    with ThreadPoolExecutor(concurrency) as pool:
        clients = [pool.submit(client) for _ in range(concurrency)]
        assert enough.wait(60), "the service does not answer"
        act()
        for done in clients:
            done.result()
    return answers
