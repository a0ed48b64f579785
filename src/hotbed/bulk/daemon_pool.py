"""Threads that a process does not wait for at its end: what they do may take minutes to fail."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_Work = tuple[Future[Any], Callable[[], Any]]


class DaemonPool:
    """Like `ThreadPoolExecutor`, whose threads keep an interpreter from ending.

    Args:
        num_threads: started at once.
        name: of the threads.
    """

    def __init__(self, num_threads: int, *, name: str) -> None:
        self._waiting: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._num_threads = num_threads
        for index in range(num_threads):
            threading.Thread(target=self._run, name=f"{name}_{index}", daemon=True).start()

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Call it on a thread, after what was submitted before."""
        future: Future[T] = Future()
        self._waiting.put((future, lambda: function(*args)))
        return future

    def close(self) -> None:
        """Cancel what waits; does not wait for what runs."""
        try:
            while work := self._waiting.get_nowait():
                work[0].cancel()
        except queue.Empty:
            pass
        for _ in range(self._num_threads):
            self._waiting.put(None)

    def _run(self) -> None:
        while work := self._waiting.get():
            future, call = work
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
