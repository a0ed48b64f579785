"""Keeps one child running: starts it, starts it again when it dies, stops it when told to."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from hotbed.core.exit_codes import EXIT_CONFIGURATION, EXIT_FAILURE
from hotbed.serve.child import Child, ChildSpec, WriteLine
from hotbed.serve.restarts import RestartLimits, RestartPolicy

_CLEAN_ENDS = (0, -signal.SIGTERM)  # the second: asked before it had set up a handler


class GivenUpError(Exception):
    """A child that cannot be brought up.

    Attributes:
        exit_code: what the service should exit with.
    """

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Keeper:
    """One child's name over all its lives.

    Args:
        spec: what to run.
        limits: bounds of the back-off.
        directory: private folder for the notify socket.
        write_line: takes the child's output and what is to be said about it.
        hurry: set when nobody wants to wait any longer: a stop turns into a kill.
    """

    def __init__(
        self,
        spec: ChildSpec,
        limits: RestartLimits,
        directory: Path,
        *,
        write_line: WriteLine,
        hurry: asyncio.Event,
    ) -> None:
        self.spec = spec
        self.first_ready = asyncio.Event()
        self._limits = limits
        self._directory = directory
        self._write_line = write_line
        self._hurry = hurry
        self._stopping = asyncio.Event()
        self._grace_s = 0.0

    async def run(self) -> bool:
        """Keep the child running until `stop`; must not be cancelled, or the child is left behind.

        Returns:
            Whether it ended well when asked to: by itself, without an error.

        Raises:
            GivenUpError: it ended too often without ever having been ready, or said that its
                settings cannot work.
        """
        policy = RestartPolicy(self._limits)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            while not self._stopping.is_set():
                child = await Child.start(
                    self.spec,
                    self._directory,
                    write_line=self._write_line,
                    on_ready=self.first_ready.set,
                )
                ended = asyncio.create_task(child.wait())
                await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not ended.done():
                    return await self._end(child, ended)
                if not self._stopping.is_set():
                    await self._wait_for_the_next_start(policy, ended.result(), child, stopping)
            return True
        finally:
            stopping.cancel()

    def stop(self, grace_s: float) -> None:
        """Have `run` end the child: SIGTERM, then SIGKILL after `grace_s` or once in a hurry."""
        self._grace_s = grace_s
        self._stopping.set()

    async def _end(self, child: Child, ended: asyncio.Task[int]) -> bool:
        child.terminate()
        hurried = asyncio.create_task(self._hurry.wait())
        await asyncio.wait(
            {ended, hurried}, timeout=self._grace_s, return_when=asyncio.FIRST_COMPLETED
        )
        hurried.cancel()
        if not ended.done():
            self._say("is killed" + ("" if self._hurry.is_set() else f" after {self._grace_s:g} s"))
            child.kill()
        exit_code = await ended
        if exit_code not in _CLEAN_ENDS:
            self._say(f"ended with {describe_exit(exit_code)}")
        return exit_code in _CLEAN_ENDS

    async def _wait_for_the_next_start(
        self,
        policy: RestartPolicy,
        exit_code: int,
        child: Child,
        stopping: asyncio.Task[bool],
    ) -> None:
        delay_s = policy.after_exit(exit_code, ready_for_s=child.ready_for_s)
        if delay_s is None:
            raise self._given_up(exit_code)
        self._say(f"ended with {describe_exit(exit_code)}; starting again in {delay_s:g} s")
        await asyncio.wait({stopping}, timeout=delay_s)

    def _given_up(self, exit_code: int) -> GivenUpError:
        name = self.spec.name
        if exit_code == EXIT_CONFIGURATION:
            return GivenUpError(
                f"{name} cannot run with these settings (its message is above)",
                exit_code=EXIT_CONFIGURATION,
            )
        return GivenUpError(
            f"{name} ended {self._limits.max_failed_starts} times before it was ready, "
            f"the last time with {describe_exit(exit_code)}",
            exit_code=EXIT_FAILURE,
        )

    def _say(self, text: str) -> None:
        self._write_line("serve", f"{self.spec.name} {text}")


def describe_exit(exit_code: int) -> str:
    """`exit code 1` or `SIGKILL`."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    return signal.Signals(-exit_code).name
