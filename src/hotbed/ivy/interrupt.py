"""Ends a waiting request early: its client went away, or its time ran out."""

from __future__ import annotations

import asyncio
from types import TracebackType

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.ivy.errors import HttpError
from hotbed.ivy.http import CLOSE, Receive

# A request answered sooner costs no watcher task (about 15 us of CPU, uvloop, 2026-11-30); a lost
# client is noticed that much later.
WATCH_DELAY_S = 0.02


class Interrupt:
    """Context manager around all the work for one request, from reading its body on.

    Cancels the task inside when `deadline` (event loop time) passes or, after `body_read` was
    called, when the client disconnects; that cancellation leaves as an error of ours. A
    cancellation from elsewhere passes through. One timer serves both, since most requests are
    answered before it fires.
    """

    def __init__(self, receive: Receive, deadline: float) -> None:
        self._receive = receive
        self._deadline = deadline
        self._error: HotbedError | HttpError | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._is_body_read = False
        self._is_watch_due = False

    def __enter__(self) -> Interrupt:
        task = asyncio.current_task()
        assert task is not None, "an ASGI application runs in a task"
        self._task = task
        self._loop = asyncio.get_running_loop()
        watch_at = self._loop.time() + WATCH_DELAY_S
        if watch_at < self._deadline:
            self._timer = self._loop.call_at(watch_at, self._watch_due)
        else:
            self._timer = self._loop.call_at(self._deadline, self._time_out)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._error is None:
            return
        remaining = self._task.uncancel()
        if error is None or (kind is asyncio.CancelledError and remaining == 0):
            raise self._error from error

    def body_read(self) -> None:
        """From now on the client has nothing more to send: what comes next is its leaving."""
        self._is_body_read = True
        if self._is_watch_due:
            self._watcher = self._loop.create_task(self._watch())

    def _watch_due(self) -> None:
        self._timer = self._loop.call_at(self._deadline, self._time_out)
        self._is_watch_due = True
        if self._is_body_read:
            self._watcher = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._stop(HotbedError(ErrorCode.CANCELLED, "The client closed the connection."))

    def _time_out(self) -> None:
        if not self._is_body_read:
            message = "The body did not arrive in time."
            self._stop(HttpError(408, "request_timeout", message, (CLOSE,)))
            return
        self._stop(
            HotbedError(
                ErrorCode.DEADLINE_EXCEEDED,
                "The request's time ran out before the answer was ready; allow more with the "
                "header x-request-timeout-ms, or send fewer inputs at a time.",
                retry_after_s=1.0,
            )
        )

    def _stop(self, error: HotbedError | HttpError) -> None:
        if self._error is None:
            self._error = error
            self._task.cancel()
