"""The one thread that owns the device: loads the engine there, enqueues steps, closes it there."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable

from hotbed.core.step import Engine, PendingStep
from hotbed.tulip.work import Step

log = logging.getLogger(__name__)

_QUIET_S = 0.02
"""Without a step for so long the engine may do what it left for later. Longer than the pause of a
client that asks one thing after the other, so that its next request does not meet such work."""

OnEnqueued = Callable[[Step, PendingStep | BaseException], None]


class DeviceThread:
    """Runs engine calls one after the other; answers on the event loop it was made on.

    A queue and `call_soon_threadsafe` rather than an executor: a step costs one hop here and one
    back, and no future in between.

    Args:
        load: makes the engine; called on the thread, once, at its start.
    """

    def __init__(self, load: Callable[[], Engine]) -> None:
        self._load = load
        self._loop = asyncio.get_running_loop()
        self._steps: queue.SimpleQueue[tuple[Step, OnEnqueued] | None] = queue.SimpleQueue()
        self._loaded: asyncio.Future[Engine] = self._loop.create_future()
        self._ended = asyncio.Event()
        # A daemon, because a device that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="tulip-device", daemon=True)
        self._thread.start()

    async def loaded(self) -> Engine:
        """The engine, once it is loaded; raises what the loader raised."""
        return await asyncio.shield(self._loaded)

    def enqueue(self, step: Step, on_enqueued: OnEnqueued) -> None:
        """Build the step's batch and hand it to the engine, on the device thread.

        `on_enqueued` gets the step and what `engine.step` returned or raised, on the event loop.
        """
        self._steps.put((step, on_enqueued))

    async def close(self, timeout_s: float) -> bool:
        """Close the engine and end the thread; False if it hangs longer than the limit."""
        self._steps.put(None)
        try:
            await asyncio.wait_for(self._ended.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def _run(self) -> None:
        try:
            engine = self._load()
        except BaseException as error:
            self._call(_settle, self._loaded, error)
            self._call(self._ended.set)
        else:
            self._call(_settle, self._loaded, engine)
            try:
                self._serve(engine)
            except Exception:
                log.exception("the engine could not be closed")
            self._call(self._ended.set)

    def _serve(self, engine: Engine) -> None:
        while (work := self._next(engine)) is not None:
            step, on_enqueued = work
            outcome: PendingStep | BaseException
            try:
                batch, segments = step.build()
                outcome = engine.step(batch, segments)
            except BaseException as error:
                outcome = error
            self._call(on_enqueued, step, outcome)
        engine.close()

    def _next(self, engine: Engine) -> tuple[Step, OnEnqueued] | None:
        """The next step; None at the end. While none comes the engine does its idle work.

        A step that comes meanwhile waits for one piece of that work, never for two.
        """
        may_have_more = True
        while may_have_more:
            try:
                return self._steps.get(timeout=_QUIET_S)
            except queue.Empty:
                try:
                    may_have_more = engine.idle()
                except Exception:
                    # No step is at fault; if the device is gone the next one will say so.
                    log.exception("the engine's idle work failed")
                    may_have_more = False
        return self._steps.get()

    def _call(self, function: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            if not self._loop.is_closed():
                raise


def _settle(future: asyncio.Future[Engine], outcome: Engine | BaseException) -> None:
    if future.cancelled():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
        # Whoever stopped waiting for it does not hear of a failure: no fault of theirs. Asked for
        # here and not in a callback, for which a loop that ends has no turn left.
        future.exception()
    else:
        future.set_result(outcome)
