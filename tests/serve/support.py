"""Fake children for the supervisor, and a recorder for what is said."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

from hotbed.serve.child import ChildSpec

READY = "from hotbed.core.notify import notify; notify()"
SAY = "import functools; say = functools.partial(print, flush=True)"
# Blocks until a signal comes; a script's handler may then raise SystemExit.
WAIT = "import signal\nwhile True: signal.pause()"
OBEYS = (
    f"{SAY}; import signal, sys; "
    "signal.signal(signal.SIGTERM, lambda *_: (say('told'), sys.exit(0)))"
)
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def spec(name: str, *lines: str) -> ChildSpec:
    """A child that runs the lines as a Python script."""
    return ChildSpec(name, (sys.executable, "-c", "\n".join(lines)), dict(os.environ))


class Recorder:
    """Keeps every line and wakes who waits for one."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self._changed = asyncio.Event()

    def write_line(self, name: str, line: str) -> None:
        self.lines.append((name, line))
        self._changed.set()

    def of(self, name: str) -> list[str]:
        return [line for who, line in self.lines if who == name]

    async def until(self, condition: Callable[[Recorder], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()
