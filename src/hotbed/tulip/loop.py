"""Drives the scheduler: submits come in on the event loop, steps go to the device thread.

Up to `max_steps_in_flight` steps are with the engine: one runs, the next is enqueued behind it so
that the device does not wait for Python. No timers for batching and no polling: a lone item starts
at once, and while the device is busy the others gather.

A step behind a running one is handed out only when `min_ahead_tokens` wait. With fewer it is better
to let them gather until the running step ends: a small step costs nearly as much as a larger one.

Hops of a lone item: event loop -> device thread (builds the batch, calls the engine) -> whatever
the engine computes on -> event loop (`await pending`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hotbed.core.errors import HotbedError
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import Engine, EngineDeadError, PendingStep
from hotbed.tulip import faults
from hotbed.tulip.device import DeviceThread
from hotbed.tulip.metrics import Metrics, StepTotals
from hotbed.tulip.scheduler import Scheduler
from hotbed.tulip.tracing import Tracing
from hotbed.tulip.work import Answer, Item, Step
from hotbed.wire.limits import Limits

log = logging.getLogger(__name__)


class StepLoop:
    """One engine at work. Every method is called on the event loop.

    Every accepted item gets one call of its `on_answer`, also when the engine dies.

    Args:
        engine: loaded; used on its device thread only.
        device: the thread that owns the engine.
        limits: of steps, items and the queue.
        metrics: where to count.
        max_steps_in_flight: steps with the engine at a time.
        min_ahead_tokens: tokens that must wait before a step goes behind a running one.
        step_timeout_s: a step that takes longer counts as the engine's death; 0: no limit.
        tracing: makes spans of traced items; None: traces are off.
    """

    def __init__(
        self,
        engine: Engine,
        device: DeviceThread,
        limits: Limits,
        metrics: Metrics,
        *,
        max_steps_in_flight: int = 2,
        min_ahead_tokens: int = 512,
        step_timeout_s: float = 0.0,
        tracing: Tracing | None = None,
    ) -> None:
        self.info = engine.info
        self.limits = limits
        self.died = asyncio.Event()
        """Set when no later step can succeed; everything was answered before."""
        self.idle = asyncio.Event()
        """Set while no accepted item is unanswered."""
        self.idle.set()
        self.on_arrival: Callable[[object, NDArray[np.int32]], None] | None = None
        """Called with (client, lengths) of each item that comes, also of refused ones."""
        self._device = device
        self._metrics = metrics
        self._tracing = tracing
        self._max_steps_in_flight = max_steps_in_flight
        self._min_ahead_tokens = min(min_ahead_tokens, limits.max_step_tokens)
        self._step_timeout_s = step_timeout_s
        self._scheduler = Scheduler(limits, isolates_nan=engine.isolates_nan)
        self.engine_counters = engine.counters
        """The engine's own totals by name."""
        metrics.watch_engine(engine.counters)
        metrics.watch_queue(lambda: self._scheduler.num_waiting_tokens)
        self._loop = asyncio.get_running_loop()
        self._in_flight: deque[Step] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_unavailable: str | None = None
        self._is_pump_due = False
        self._is_closed = False
        self._last_end = -math.inf
        self._expiry: asyncio.TimerHandle | None = None
        self._expiry_at = math.inf
        self._watch: asyncio.TimerHandle | None = None

    @property
    def num_open_items(self) -> int:
        """Items accepted and not answered."""
        return self._scheduler.num_open_items

    @property
    def num_waiting_tokens(self) -> int:
        """Tokens of accepted sequences that no step has taken yet."""
        return self._scheduler.num_waiting_tokens

    @property
    def step_totals(self) -> StepTotals:
        """Of the steps since the start."""
        return self._metrics.totals

    def submit(
        self,
        batch: RaggedBatch,
        spec: OutputSpec,
        *,
        on_answer: Callable[[Answer], None],
        tag: int = 0,
        timeout_s: float | None = None,
        client: object = None,
        traceparent: str = "",
    ) -> Item:
        """Accept an item; it starts when the event loop comes round, with what came beside it.

        Args:
            batch: sequences that suit the model (see `hotbed.tulip.door`).
            spec: with explicit dimensions and normalisation.
            on_answer: called once with the answer, never from within this call.
            tag: comes back in ``answer.item.tag``.
            timeout_s: time after which nobody wants the answer.
            client: who sent it, hashable; clients take turns.
            traceparent: W3C trace context of the sender's span; empty: not traced.

        Raises:
            HotbedError: the item is refused: too large, queue full, expired, draining or dead.
        """
        if self.on_arrival is not None:
            self.on_arrival(client, batch.lengths)
        now = time.monotonic()
        deadline = math.inf if timeout_s is None else now + timeout_s
        item = Item(
            batch,
            spec,
            on_answer=on_answer,
            tag=tag,
            deadline=deadline,
            client=client,
            traceparent=traceparent if self._tracing is not None else "",
        )
        if self._is_unavailable is not None:
            raise faults.unavailable(self._is_unavailable)
        self._scheduler.submit(item, now)
        self.idle.clear()
        self._schedule_pump()
        return item

    def count_refusal(self, error: HotbedError) -> None:
        """An item was refused, here or at the door."""
        self._metrics.refused(error)

    def cancel(self, item: Item) -> None:
        """Answer the item CANCELLED unless it is answered."""
        self._scheduler.cancel(item)
        self._schedule_pump()

    def refuse_all(self, why: str) -> None:
        """From now on refuse every item as UNAVAILABLE; `why` is ``draining`` and the like."""
        self._is_unavailable = why

    def abandon(self, why: str) -> None:
        """Refuse every item from now on and answer all that is open in the same way."""
        self.refuse_all(why)
        self._scheduler.fail_all(faults.unavailable(why))
        self._deliver()

    def close(self) -> None:
        """Stop waiting for steps and timers. Answers nothing: drain or abandon first."""
        self._is_closed = True
        for timer in (self._expiry, self._watch):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            task.cancel()

    def _schedule_pump(self) -> None:
        # Not at once: the other items of the same message, and other messages that lie ready, are
        # to share the step. The event loop comes round before it waits for anything.
        if not self._is_pump_due:
            self._is_pump_due = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Hand out steps while the engine has room; deliver answers; set the next timer."""
        self._is_pump_due = False
        try:
            # Also while the engine has no room: an item's time passes behind a long step too.
            self._scheduler.expire(time.monotonic())
            while len(self._in_flight) < self._max_steps_in_flight and not self.died.is_set():
                min_tokens = self._min_ahead_tokens if self._in_flight else 1
                step = self._scheduler.next_step(time.monotonic(), min_tokens=min_tokens)
                if step is None:
                    break
                self._in_flight.append(step)
                self._device.enqueue(step, self._on_enqueued)
            self._deliver()
            self._set_timers()
        except Exception as error:
            self._die(error)

    def _on_enqueued(self, step: Step, outcome: PendingStep | BaseException) -> None:
        task = self._loop.create_task(self._finish(step, outcome))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, step: Step, outcome: PendingStep | BaseException) -> None:
        """Wait for the step, take it in, go on. Whatever goes wrong here ends in answers."""
        try:
            await self._take_in(step, outcome)
        except asyncio.CancelledError as error:
            if self._is_closed:
                raise
            self._die(error)  # the engine threw the step away
        except Exception as error:
            self._die(error)
        else:
            self._pump()

    async def _take_in(self, step: Step, outcome: PendingStep | BaseException) -> None:
        try:
            if isinstance(outcome, BaseException):
                raise outcome
            result = await outcome
            step.check(result, self.info)
        except EngineDeadError:
            raise
        except Exception as error:
            self._end_step(step, error)
            self._scheduler.fail(step, error, self._last_end)
            self._metrics.step_failed()
            log.warning(
                "a step of %d sequences, %d tokens failed: %s: %s",
                step.num_sequences,
                step.num_tokens,
                type(error).__name__,
                error,
                exc_info=error if step.num_sequences == 1 else None,
            )
        else:
            self._end_step(step)
            self._scheduler.complete(step, result, self._last_end)
            self._metrics.step_done(step, self._last_end - step.started_at)

    def _end_step(self, step: Step, error: BaseException | None = None) -> None:
        self._last_end = time.monotonic()
        self._in_flight.remove(step)
        if self._tracing is not None:
            self._tracing.step_ended(step, self._last_end, error)

    def _deliver(self) -> None:
        for answer in self._scheduler.take_answers():
            self._metrics.answered(answer)
            if self._tracing is not None:
                self._tracing.answered(answer, time.monotonic())
            answer.item.on_answer(answer)
        if self._scheduler.num_open_items == 0:
            self.idle.set()

    def _die(self, error: BaseException) -> None:
        """No later step can succeed: answer everything and say so."""
        if self.died.is_set():
            return
        log.critical("the engine is dead: %s: %s", type(error).__name__, error, exc_info=error)
        self.died.set()
        self.abandon("stopping: its engine died")

    def _set_timers(self) -> None:
        deadline = self._scheduler.earliest_deadline
        if deadline < self._expiry_at:
            if self._expiry is not None:
                self._expiry.cancel()
            self._expiry_at = deadline
            self._expiry = self._loop.call_later(deadline - time.monotonic(), self._expire)
        if self._step_timeout_s and self._in_flight and self._watch is None:
            self._watch = self._loop.call_later(self._step_timeout_s, self._check_progress)

    def _expire(self) -> None:
        self._expiry, self._expiry_at = None, math.inf
        self._pump()

    def _check_progress(self) -> None:
        """Die if the oldest step in flight has run too long, else look again when it will have."""
        self._watch = None
        if not self._in_flight or self.died.is_set():
            return
        started_at = max(self._in_flight[0].composed_at, self._last_end)
        left_s = started_at + self._step_timeout_s - time.monotonic()
        if left_s > 0:
            self._watch = self._loop.call_later(left_s, self._check_progress)
        else:
            self._die(TimeoutError(f"a step has been running for {self._step_timeout_s} s"))
