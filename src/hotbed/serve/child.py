"""One life of one child process: start, output, end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hotbed.serve import tether
from hotbed.serve.readiness import ReadyListener

WriteLine = Callable[[str, str], None]
"""Takes the name of who speaks and one line of text without its end."""

_READ_BYTES = 64 * 1024
_MAX_LINE_BYTES = 64 * 1024
_LAST_OUTPUT_S = 1.0  # for what a dead child left in its pipe; a grandchild may hold it open


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to run.

    Attributes:
        name: unique among the children; prefixes its output.
        command: program and arguments.
        environment: the whole environment; NOTIFY_SOCKET is added.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]


class Child:
    """A process that runs, or ran; `start` makes one.

    It leads a session of its own, so that Ctrl-C in the terminal reaches only the supervisor, and
    is told to stop when the supervisor dies, even killed (`hotbed.serve.tether`).
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        listener: ReadyListener,
        output: asyncio.Task[None],
    ) -> None:
        self._process = process
        self._listener = listener
        self._output = output

    @classmethod
    async def start(
        cls,
        spec: ChildSpec,
        directory: Path,
        *,
        write_line: WriteLine,
        on_ready: Callable[[], None],
    ) -> Child:
        """Start the process; `wait` must be awaited for each.

        Args:
            spec: what to run.
            directory: private folder for the notify socket.
            write_line: takes its output, standard error included, line by line.
            on_ready: called once, when it says that it is ready.

        Raises:
            OSError: it could not be started.
        """
        listener = ReadyListener(directory / f"{spec.name}.notify", on_ready)
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", tether.__file__, str(os.getpid())),
                *spec.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**spec.environment, "NOTIFY_SOCKET": listener.address},
                start_new_session=True,
            )
        except BaseException:
            listener.close()
            raise
        assert process.stdout is not None, "bug: the pipe was asked for"
        output = asyncio.create_task(_pass_on(process.stdout, spec.name, write_line))
        return cls(process, listener, output)

    async def wait(self) -> int:
        """The exit code once it has ended (negative for a signal) and its output is passed on."""
        exit_code = await self._process.wait()
        await asyncio.wait({self._output}, timeout=_LAST_OUTPUT_S)
        self._output.cancel()
        self._listener.close()
        return exit_code

    @property
    def ready_for_s(self) -> float | None:
        """Seconds since it said that it was ready; None if it has not."""
        return self._listener.ready_for_s

    def terminate(self) -> None:
        """Ask it to finish (SIGTERM); nothing if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """End it and what it started (SIGKILL to its session); nothing if it has ended."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


async def _pass_on(stream: asyncio.StreamReader, name: str, write_line: WriteLine) -> None:
    pending = b""
    while chunk := await stream.read(_READ_BYTES):
        *lines, pending = (pending + chunk).split(b"\n")
        if len(pending) > _MAX_LINE_BYTES:
            lines, pending = [*lines, pending], b""
        for line in lines:
            write_line(name, line.decode(errors="replace"))
    if pending:
        write_line(name, pending.decode(errors="replace"))
