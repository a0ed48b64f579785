"""Processes that the bench starts: with a log each, ended with all they started, never waited for
without a limit.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotbed.serve import tether

_LOG_LINES = 8
_LOG_LINE_CHARACTERS = 300
_END_TIMEOUT_S = 10.0
_LOOK_S = 1.0
# Appended, so that the packages of the system's own environment come first.
_BOOTSTRAP = (
    "import importlib, sys; sys.path.append(sys.argv[1]);"
    " importlib.import_module(sys.argv[2]).main(sys.argv[3:])"
)
_SOURCE = Path(__file__).parents[2]


class SystemFailedError(Exception):
    """A system did not do what was asked; the message says what happened."""


class NoAnswerError(SystemFailedError):
    """It has ended, or does not answer in time: it cannot be asked again."""


class Process:
    """One process in a session of its own, told to stop when the bench dies.

    Args:
        command: program and arguments.
        environment: the whole of it.
        log: takes standard output and standard error.
        pass_fds: file descriptors that it inherits.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        pass_fds: tuple[int, ...] = (),
    ) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603  # what the user asked for
                [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                pass_fds=pass_fds,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float) -> int | None:
        """Its exit code, or None if it still runs after that time."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def log_tail(self) -> list[str]:
        """The last lines of its log."""
        if not self.log.is_file():
            return []
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line[:_LOG_LINE_CHARACTERS] for line in lines if line.strip()][-_LOG_LINES:]

    def terminate(self) -> None:
        """Ask it to end."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """End it and all it started; returns when it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Worker:
    """A process that answers messages: see `hotbed.bench.worker` and `hotbed.bench.client`.

    Args:
        python: its interpreter.
        module: whose `main` it runs, with the pipe's file descriptor and `arguments`.
        arguments: of `main`.
        environment: the whole of it.
        log: takes its output.
    """

    def __init__(
        self,
        python: str,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
    ) -> None:
        self._pipe, child = Pipe()
        fd = child.fileno()
        command = [python, "-c", _BOOTSTRAP, str(_SOURCE), module, str(fd), *arguments]
        self.process = Process(command, environment, log, pass_fds=(fd,))
        child.close()
        self._number = 0
        """Of the last message; what it says of itself once it is loaded has number 0."""

    def wait_until_ready(self, timeout_s: float) -> dict[str, Any]:
        """What it says of itself, once it is loaded.

        Raises:
            SystemFailedError: it could not be loaded, or not in that time.
        """
        return self.receive("load", timeout_s)

    def ask(self, message: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a message and return its answer.

        Raises:
            SystemFailedError: an error, no answer in that time, or the end of the process.
        """
        self.send(message)
        return self.receive(str(message["do"]), timeout_s)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message whose answer is received later.

        Raises:
            SystemFailedError: the process has ended.
        """
        self._number += 1
        try:
            self._pipe.send_bytes(json.dumps({**message, "number": self._number}).encode())
        except OSError:
            raise self._ended() from None

    def rows(self, timeout_s: float, **where: str) -> NDArray[np.float32]:
        """Rows of the inputs it was given last; a client's `where` names the server's address.

        Raises:
            SystemFailedError: as of `ask`.
        """
        answer = self.ask({"do": "rows", "timeout_s": timeout_s, **where}, timeout_s)
        data = base64.b64decode(answer["rows"])
        return np.frombuffer(data, dtype=np.float32).reshape(answer["shape"])

    def close(self) -> None:
        """End it."""
        self._pipe.close()  # it ends by itself when it reads next
        if self.process.wait(_END_TIMEOUT_S) is None:
            self.process.terminate()
        self.process.kill()

    def receive(self, doing: str, timeout_s: float) -> dict[str, Any]:
        """The answer to the message that was sent last.

        Raises:
            SystemFailedError: as of `ask`.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            answer = self._next(doing, deadline, timeout_s)
            # One that nobody waited for any more is not the answer to what was asked since.
            if answer.pop("number") == self._number:
                break
        if "error" in answer:
            raise SystemFailedError(f"{doing}: {answer['error']}")
        return answer

    def _next(self, doing: str, deadline: float, timeout_s: float) -> dict[str, Any]:
        try:
            # A process that it started may hold the pipe open when it is gone: so it is asked, too.
            while not self._pipe.poll(min(_LOOK_S, remaining(deadline))):
                if self.process.exit_code is not None and not self._pipe.poll():
                    raise self._ended()
                if time.monotonic() >= deadline:
                    raise NoAnswerError(f"no answer to {doing!r} within {timeout_s:g} s")
            answer: dict[str, Any] = json.loads(self._pipe.recv_bytes())
        except (EOFError, ConnectionResetError):
            raise self._ended() from None
        return answer

    def _ended(self) -> NoAnswerError:
        code = self.process.wait(_END_TIMEOUT_S)
        return NoAnswerError(f"its process ended with exit code {code}")


def remaining(deadline: float) -> float:
    """Seconds until a time of the monotonic clock, not below zero."""
    return max(0.0, deadline - time.monotonic())
