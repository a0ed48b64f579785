"""The future of a step on a device: completed by whoever waits for it.

Who blocks for a result waits for the step's event itself, with the GIL released: handing it over
from another thread would cost two wake-ups of a sleeping thread, some 0.1 ms of a short text's
1 ms. Who awaits it, or asks to be called, has the runner's own thread wait instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from hotbed.core.step import EngineDeadError, StepResult
from hotbed.rose.readback import Readback


class StepFuture(Future[StepResult]):
    """Result of one step whose copies have been enqueued.

    Args:
        rows: of the step; the event of its staging is recorded behind the copies.
        watch: has another thread call `settle`.
        release: called once, when the rows have been taken out of the staging.
    """

    def __init__(
        self,
        rows: Readback,
        *,
        watch: Callable[[StepFuture], None],
        release: Callable[[], None],
    ) -> None:
        super().__init__()
        self._rows: Readback | None = rows
        self._watch, self._release = watch, release
        self._lock = threading.Lock()

    def settle(self) -> None:
        """Wait for the step and complete the future, unless another thread has."""
        rows = self._rows
        if rows is None:
            return
        error = None
        try:
            event = rows.staging.event
            assert event is not None, "it was recorded by submit: a bug"
            event.synchronize()
        except RuntimeError as fault:
            error = EngineDeadError(str(fault))
        with self._lock:
            if self._rows is None:
                return
            self._rows = None
            if error is not None:
                self.set_exception(error)
                return
            result = rows.result()
            self._release()
            self.set_result(result)

    def done(self) -> bool:
        """Whether `result` would return at once."""
        rows = self._rows
        return rows is None or super().done() or rows.is_there()

    def result(self, timeout: float | None = None) -> StepResult:
        """The step's result; raises what the step raised."""
        self._before_waiting(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the step raised, or None."""
        self._before_waiting(timeout)
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[StepResult]], object]) -> None:
        """See `Future.add_done_callback`; called on the runner's thread."""
        super().add_done_callback(fn)
        if self._rows is not None:
            self._watch(self)

    def cancel(self) -> bool:
        """False: what is enqueued is computed."""
        return False

    def _before_waiting(self, timeout: float | None) -> None:
        if timeout is None:
            self.settle()
        elif self._rows is not None:
            self._watch(self)
