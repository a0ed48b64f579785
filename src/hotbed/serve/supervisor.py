"""Brings stages of children up in order, keeps them running, takes them down in reverse order.

A stage starts when every child of the stages before it is ready: Tulip replicas, then Ivy workers.
Going down, Ivy stops accepting and finishes what is in flight while the replicas still answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from hotbed.core.exit_codes import EXIT_FAILURE
from hotbed.serve.child import ChildSpec, WriteLine
from hotbed.serve.keeper import GivenUpError, Keeper
from hotbed.serve.restarts import RestartLimits

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    """Runs the children of one service.

    Args:
        stages: children to run, in the order of starting.
        directory: private folder for the children's notify sockets.
        limits: bounds of the restarts.
        stop_grace_s: seconds that each stage gets to end after SIGTERM.
        write_line: takes the children's output and the supervisor's own remarks.
        on_ready: awaited once, when every child has been ready.
    """

    def __init__(
        self,
        stages: Sequence[Sequence[ChildSpec]],
        directory: Path,
        *,
        limits: RestartLimits,
        stop_grace_s: float,
        write_line: WriteLine,
        on_ready: Callable[[], Awaitable[None]],
    ) -> None:
        self._stages = stages
        self._directory = directory
        self._limits = limits
        self._stop_grace_s = stop_grace_s
        self._write_line = write_line
        self._on_ready = on_ready
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._running: list[dict[asyncio.Task[bool], Keeper]] = []

    async def run(self) -> int:
        """Run until a stop signal, or until a child is given up; every child has ended then.

        Returns:
            The exit code: 0 after a stop in which every child ended well.
        """
        with self._signals():
            serving = asyncio.create_task(self._serve())
            stop = asyncio.create_task(self._stop.wait())
            await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            serving.cancel()
            all_well = await self._take_down()
        if serving.cancelled():
            return 0 if all_well else EXIT_FAILURE
        try:
            return serving.result()
        except GivenUpError as error:
            self._write_line("serve", f"gives up: {error}")
            return error.exit_code

    async def _serve(self) -> NoReturn:
        for stage in self._stages:
            started: dict[asyncio.Task[bool], Keeper] = {}
            self._running.append(started)
            for spec in stage:
                keeper = Keeper(
                    spec,
                    self._limits,
                    self._directory,
                    write_line=self._write_line,
                    hurry=self._hurry,
                )
                started[asyncio.create_task(keeper.run())] = keeper
            for keeper in started.values():
                await self._while_all_run(keeper.first_ready.wait())
        await self._while_all_run(self._on_ready())
        while True:
            await self._while_all_run(asyncio.Event().wait())

    async def _while_all_run(self, awaitable: Awaitable[object]) -> None:
        """Await it; raises at once what ends a keeper meanwhile."""
        waiting = asyncio.ensure_future(awaitable)
        keeping = [task for stage in self._running for task in stage]
        try:
            await asyncio.wait({waiting, *keeping}, return_when=asyncio.FIRST_COMPLETED)
            for task in keeping:
                if task.done():
                    task.result()
            await waiting
        finally:
            waiting.cancel()

    async def _take_down(self) -> bool:
        self._write_line("serve", "stopping")
        all_well = True
        for stage in reversed(self._running):
            for keeper in stage.values():
                keeper.stop(self._stop_grace_s)
            ends = await asyncio.gather(*stage, return_exceptions=True)
            all_well = all_well and all(end is True for end in ends)
        return all_well

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        try:
            yield
        finally:
            for number in _STOP_SIGNALS:
                loop.remove_signal_handler(number)

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()
