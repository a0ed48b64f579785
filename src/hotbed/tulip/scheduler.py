r"""Clients in turn, each first come, first served, by token budget: a pure state machine.

No clock of its own (times are passed in), no asyncio, no torch. An item is refused at `submit` or
accepted; every accepted item is answered exactly once, by `take_answers`:

    submit -> waiting -> taken into one or more steps -> all rows there -> answered
                 \ cancelled, expired       \ cancelled, failed, not finite

A step takes sequences in the order of `hotbed.tulip.waiting` until the next one would break the
budget of tokens or sequences; a sequence longer than the token budget runs alone; an item may be
spread over several steps. A failed step is split in halves, which run before new work, down to the
single sequence at fault.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotbed.core.errors import HotbedError
from hotbed.core.rows import RowSet
from hotbed.core.step import StepResult
from hotbed.tulip import faults
from hotbed.tulip.group_rows import GroupRows
from hotbed.tulip.waiting import TURNS_A_STEP, Waiting
from hotbed.tulip.work import Answer, Item, Part, Step
from hotbed.wire.errors import RETRY_AFTER_S
from hotbed.wire.limits import Limits

_MIN_RETRY_AFTER_S = 0.1
_MAX_RETRY_AFTER_S = 30.0
_RESERVE = 8
"""Its eighth of the queue is open to a client however much others wait for."""
_RATE_DECAY = 0.9
"""Weight of the past when a step enters the service rate: about the last ten steps count."""


class Scheduler:
    """Waiting items, items in steps, and answers not yet taken, under one set of limits.

    Args:
        limits: of steps, items and the queue.
        isolates_nan: see `hotbed.core.step.Engine.isolates_nan`.
        waiting: in which order items are taken; None: clients in turn.
    """

    def __init__(
        self, limits: Limits, *, isolates_nan: bool = True, waiting: Waiting | None = None
    ) -> None:
        self._limits = limits
        self._isolates_nan = isolates_nan
        if waiting is None:
            waiting = Waiting(max(1, limits.max_step_tokens // TURNS_A_STEP))
        self._waiting = waiting
        self._open: set[Item] = set()
        self._retries: deque[Step] = deque()
        self._answers: list[Answer] = []
        self._earliest_deadline = math.inf
        self._last_end = -math.inf
        self._rate_tokens = 0.0
        self._rate_seconds = 0.0

    @property
    def num_waiting_tokens(self) -> int:
        """Tokens of accepted sequences that no step has taken yet."""
        return self._waiting.num_tokens

    @property
    def num_open_items(self) -> int:
        """Items accepted and not answered."""
        return len(self._open)

    @property
    def earliest_deadline(self) -> float:
        """No waiting item expires before this time; inf if none can."""
        return self._earliest_deadline

    def submit(self, item: Item, now: float) -> None:
        """Accept an item.

        Raises:
            HotbedError: TOO_LARGE if it can never fit; OVERLOADED with a retry hint if the queue
                has no room for it now; DEADLINE_EXCEEDED if its deadline has passed already.
        """
        limits = self._limits
        if item.num_sequences > limits.max_item_sequences:
            raise faults.too_large(item.num_sequences, limits.max_item_sequences, "sequences")
        if item.num_rows > limits.max_item_sequences:
            raise faults.too_large(item.num_rows, limits.max_item_sequences, "spans")
        if item.num_tokens > limits.max_item_tokens:
            raise faults.too_large(item.num_tokens, limits.max_item_tokens, "tokens")
        if item.num_tokens > limits.max_queue_tokens:
            raise faults.too_large(item.num_tokens, limits.max_queue_tokens, "tokens")
        if item.deadline <= now:
            raise faults.expired()
        max_queue_tokens = self._max_queue_tokens(item)
        excess = self._waiting.num_tokens + item.num_tokens - max_queue_tokens
        if excess > 0:
            raise faults.queue_full(
                self._waiting.num_tokens,
                item.num_tokens,
                max_queue_tokens,
                self._retry_after_s(excess),
            )
        item.accepted_at = now
        self._waiting.add(item)
        self._open.add(item)
        self._earliest_deadline = min(self._earliest_deadline, item.deadline)

    def cancel(self, item: Item) -> None:
        """Answer the item CANCELLED unless it is answered; what of it runs is thrown away."""
        if not item.is_answered:
            self._answer(item, faults.cancelled())

    def expire(self, now: float) -> None:
        """Answer waiting items whose deadline has passed, also those that were taken in part.

        Items that no longer wait are answered when their step ends.
        """
        if now < self._earliest_deadline:
            return
        for item in [i for i in self._waiting if i.deadline <= now]:
            self._answer(item, faults.expired())
        self._earliest_deadline = min((i.deadline for i in self._waiting), default=math.inf)

    def next_step(self, now: float, *, min_tokens: int = 1) -> Step | None:
        """The next step to run, or None if nothing waits or fewer than `min_tokens` tokens do.

        A step of a failed step's sequences comes first and whatever its size.
        """
        self.expire(now)
        step = self._next_retry()
        if step is None and 0 < self._waiting.num_tokens >= min_tokens:
            limits = self._limits
            step = Step.of(self._waiting.take(limits.max_step_tokens, limits.max_step_sequences))
        if step is not None:
            step.composed_at = now
        return step

    def complete(self, step: Step, result: StepResult, now: float) -> None:
        """Take in the rows of a step; answers the items whose last rows they are.

        An item with a row that is not finite is answered INTERNAL, where the row may be another
        sequence's fault only after its sequence has run alone; rows that come after the item's
        deadline are not sent.
        """
        self._end_of_step(step, now)
        started_at = step.started_at
        self._rate_tokens = _RATE_DECAY * self._rate_tokens + step.num_tokens
        self._rate_seconds = _RATE_DECAY * self._rate_seconds + now - started_at
        all_finite = bool(result.finite.all())
        row = segment = 0
        for spec, parts in step.groups:
            first_row = row
            outputs = GroupRows(result, segment, spec)
            segment += outputs.num_segments
            for part in parts:
                item, num_rows = part.item, part.num_rows
                if not item.is_answered:
                    part_rows = outputs.cut(row - first_row, row - first_row + num_rows)
                    finite = result.finite[row : row + num_rows]
                    item.first_started_at = min(item.first_started_at, started_at)
                    item.last_started_at = started_at
                    if all_finite or bool(finite.all()):
                        item.store(part.first_row, part_rows)
                        self._finish(item, now)
                    elif self._isolates_nan or step.num_sequences == 1:
                        bad_row = part.first_row + int(np.argmin(finite))
                        self._answer(item, faults.not_finite(item.batch.sequence_of(bad_row)))
                    else:
                        self._store_finite(part, outputs, row - first_row, finite)
                row += num_rows

    def fail(self, step: Step, error: BaseException, now: float) -> None:
        """Take in a step's failure: split it, or answer the item of its only sequence."""
        self._end_of_step(step, now)
        if step.num_sequences > 1:
            self._retries.extendleft(reversed(step.halves()))
            return
        part = next(iter(step.parts()))
        if not part.item.is_answered:
            self._answer(part.item, faults.sequence_failed(part.start, part.num_tokens, error))

    def fail_all(self, error: HotbedError) -> None:
        """Answer everything that is open with this error; no work is left then."""
        for item in list(self._open):
            self._answer(item, error)

    def take_answers(self) -> list[Answer]:
        """The answers since the last call, in the order in which they were given."""
        answers, self._answers = self._answers, []
        return answers

    def _max_queue_tokens(self, item: Item) -> int:
        """Of the queue, for this item: the last of it is kept for clients that hold little."""
        limits = self._limits
        reserve = limits.max_queue_tokens // _RESERVE
        if self._waiting.tokens_of(item.client) + item.num_tokens <= reserve:
            return limits.max_queue_tokens
        return max(limits.max_queue_tokens - reserve, item.num_tokens)

    def _store_finite(
        self, part: Part, outputs: GroupRows, at: int, finite: NDArray[np.bool_]
    ) -> None:
        """Store the rows of sequences that are finite; the others run again, each alone.

        The part's rows begin with row `at` of the group's.
        """
        for index in range(part.start, part.stop):
            first, end = (row - part.first_row for row in part.item.batch.rows_of(index, index + 1))
            if finite[first:end].all():
                part.item.store(part.first_row + first, outputs.cut(at + first, at + end))
            else:
                self._retries.append(Step.of([Part.of(part.item, index, index + 1)]))

    def _next_retry(self) -> Step | None:
        while self._retries:
            step = self._retries.popleft()
            if any(p.item.is_answered for p in step.parts()):
                step = Step.of([p for p in step.parts() if not p.item.is_answered])
            if step.num_sequences:
                return step
        return None

    def _end_of_step(self, step: Step, now: float) -> None:
        # Steps run one after another in the order in which they were handed out.
        step.started_at = max(step.composed_at, self._last_end)
        self._last_end = now

    def _finish(self, item: Item, now: float) -> None:
        if item.num_done < item.num_rows:
            return
        if item.deadline <= now:
            self._answer(item, faults.expired())
            return
        self._answer(
            item,
            item.result(),
            queue_s=item.last_started_at - item.accepted_at,
            device_s=now - item.first_started_at,
            total_s=now - item.accepted_at,
        )

    def _answer(
        self, item: Item, result: NDArray[Any] | list[RowSet] | HotbedError, **times: float
    ) -> None:
        assert not item.is_answered, "an item is answered once: this is a bug"
        item.is_answered = True
        item.rows = item.sets = None
        self._open.remove(item)
        self._waiting.discard(item)
        self._answers.append(Answer(item, result, **times))

    def _retry_after_s(self, excess_tokens: int) -> float:
        """Seconds until the excess will have been served, at the rate of the last steps."""
        if self._rate_seconds <= 0:
            return RETRY_AFTER_S
        seconds = excess_tokens * self._rate_seconds / self._rate_tokens
        return min(max(seconds, _MIN_RETRY_AFTER_S), _MAX_RETRY_AFTER_S)
