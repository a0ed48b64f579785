"""LazyTensor: the rows of a step that was enqueued and may not have been computed yet."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any

from hotbed.core.step import StepResult


class LazyTensor:
    """Handle of one step; implements `hotbed.core.step.PendingStep`.

    On the CPU the step runs on the engine's compute thread and the handle wraps its future. Waiting
    releases the GIL; awaiting never blocks the event loop.
    """

    def __init__(self, future: Future[StepResult]) -> None:
        self._future = future

    def ready(self) -> bool:
        """Whether `wait` would return at once."""
        return self._future.done()

    def wait(self) -> StepResult:
        """Block until the step is done; raises what the step raised."""
        return self._future.result()

    def __await__(self) -> Generator[Any, None, StepResult]:
        # shield: one waiter that is cancelled must not cancel the step under the others.
        return asyncio.shield(asyncio.wrap_future(self._future)).__await__()
