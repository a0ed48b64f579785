"""A stateful model of the scheduler: random submits, cancels, time, steps, failures, deaths.

What must hold whatever happens: every accepted item is answered exactly once; an item's sequences
are taken in order, and so are a client's items of about one size, within both budgets (but a lone
long one); the queue's bound is kept; rows that are answered are those of the item's own ids; the
answer fits what happened to the item. How evenly clients take turns is in `test_waiting`.
"""

from __future__ import annotations

import math

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import StepResult
from hotbed.tulip.fake_rows import expected_rows
from hotbed.tulip.scheduler import Scheduler
from hotbed.tulip.waiting import Waiting
from hotbed.tulip.work import Answer, Item, Step
from hotbed.wire.limits import Limits

LIMITS = Limits(
    max_step_tokens=10,
    max_step_sequences=4,
    max_queue_tokens=45,  # 40 for who holds more than an eighth
    max_item_sequences=7,
    max_item_tokens=30,
    max_stream_items=1,
)
SPECS = [OutputSpec(8, normalize=True), OutputSpec(16, OutputDtype.INT8, normalize=False)]
POISON, NAN = 29_999, 29_998
QUANTUM = 4


def lane_of(item: Item) -> int:
    """Up to a quantum, up to two, up to four, and so on: such items keep their order."""
    return math.ceil(math.log2(math.ceil(item.num_tokens / QUANTUM)))


class SchedulerModel(RuleBasedStateMachine):
    """What was accepted, what waits in which order, what is with an engine, what was answered."""

    isolates_nan = True

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(LIMITS, isolates_nan=self.isolates_nan, waiting=Waiting(QUANTUM))
        self.now = 0.0
        self.next_id = 0
        self.accepted: list[Item] = []
        self.waiting: list[tuple[Item, int]] = []  # (item, sequence) in order of arrival
        self.running: list[Step] = []
        self.answers: dict[Item, Answer] = {}
        self.retrying: set[tuple[Item, int]] = set()  # of failed steps, not run again yet

    @rule(
        lengths=st.lists(st.integers(1, 14), min_size=1, max_size=8),
        bad=st.sampled_from([None, None, None, None, POISON, NAN]),
        spec=st.sampled_from(SPECS),
        timeout=st.sampled_from([math.inf, math.inf, 0.0, 1.0, 5.0]),
        client=st.sampled_from("ab"),
    )
    def submit(
        self, lengths: list[int], bad: int | None, spec: OutputSpec, timeout: float, client: str
    ) -> None:
        ids = [[(self.next_id + i) % 20_000 for i in range(n)] for n in lengths]
        self.next_id += 17
        if bad is not None:
            ids[len(ids) // 2][-1] = bad
        batch = RaggedBatch.from_sequences(ids)
        deadline = self.now + timeout
        item = Item(batch, spec, on_answer=lambda _: None, deadline=deadline, client=client)
        num_waiting = sum(len(i.batch.sequence(k)) for i, k in self.waiting)
        error = self.refusal(item)
        if len(lengths) > LIMITS.max_item_sequences or sum(lengths) > LIMITS.max_item_tokens:
            assert error is not None
            assert error.code is ErrorCode.TOO_LARGE
        elif timeout == 0:
            assert error is not None
            assert error.code is ErrorCode.DEADLINE_EXCEEDED
        elif num_waiting + sum(lengths) > self.queue_limit(client, sum(lengths)):
            assert error is not None
            assert error.code is ErrorCode.OVERLOADED
            assert error.retry_after_s is not None
            assert error.retry_after_s > 0
        else:
            assert error is None
            self.accepted.append(item)
            self.waiting += [(item, k) for k in range(len(lengths))]

    def queue_limit(self, client: str, num_tokens: int) -> int:
        """An eighth of the queue is kept for clients that hold no more than that."""
        held = sum(len(i.batch.sequence(k)) for i, k in self.waiting if i.client == client)
        is_small = held + num_tokens <= 5
        return 45 if is_small else 40

    def refusal(self, item: Item) -> HotbedError | None:
        try:
            self.scheduler.submit(item, self.now)
        except HotbedError as error:
            return error
        return None

    @rule(seconds=st.floats(0.1, 3))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def expire(self) -> None:
        self.scheduler.expire(self.now)
        self.collect()
        assert all(item.deadline > self.now for item, _ in self.waiting)

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.accepted))
        self.scheduler.cancel(item)
        self.collect()
        assert item in self.answers

    @precondition(lambda self: len(self.running) < 2)
    @rule(min_tokens=st.sampled_from([1, 1, 6]))
    def take(self, min_tokens: int) -> None:
        step = self.scheduler.next_step(self.now, min_tokens=min_tokens)
        self.collect()
        if step is None:
            assert not self.retrying
            assert sum(len(i.batch.sequence(k)) for i, k in self.waiting) < min_tokens
            return
        taken = [(p.item, k) for p in step.parts() for k in range(p.start, p.stop)]
        assert taken
        assert not any(item.is_answered for item, _ in taken), "work for nobody"
        self.assert_budget(taken)
        if self.retrying:
            assert self.retrying.issuperset(taken), "new work before the retries"
            self.retrying.difference_update(taken)
        else:
            assert len(set(taken)) == len(taken)
            assert set(taken) <= set(self.waiting), "taken before"
            self.waiting = [w for w in self.waiting if w not in set(taken)]
            self.assert_in_order(taken)
            self.assert_full(taken)
        self.running.append(step)

    def assert_budget(self, taken: list[tuple[Item, int]]) -> None:
        num_tokens = sum(len(i.batch.sequence(k)) for i, k in taken)
        assert len(taken) == 1 or num_tokens <= LIMITS.max_step_tokens
        assert len(taken) <= LIMITS.max_step_sequences

    def assert_in_order(self, taken: list[tuple[Item, int]]) -> None:
        """What is left of an item comes after what was taken; equal items wait in order."""
        for item, index in self.waiting:
            assert all(k < index for i, k in taken if i is item)
            younger = self.accepted[self.accepted.index(item) + 1 :]
            overtaking = [
                i
                for i, _ in taken
                if i in younger and i.client == item.client and lane_of(i) == lane_of(item)
            ]
            assert not overtaking, "overtaken within its client by an item of its own size"

    def assert_full(self, taken: list[tuple[Item, int]]) -> None:
        """Something that waits would have broken a budget."""
        if not self.waiting or len(taken) == LIMITS.max_step_sequences:
            return
        num_tokens = sum(len(i.batch.sequence(k)) for i, k in taken)
        longest = max(len(i.batch.sequence(k)) for i, k in self.waiting)
        assert num_tokens + longest > LIMITS.max_step_tokens

    @precondition(lambda self: self.running)
    @rule(hiccup=st.booleans(), seconds=st.floats(0, 1))
    def finish(self, hiccup: bool, seconds: float) -> None:
        """The oldest step ends: as its ids say, or with a failure that does not come again."""
        self.now += seconds
        step = self.running.pop(0)
        batch, segments = step.build()
        if POISON in batch.token_ids or (hiccup and step.num_sequences > 1):
            self.scheduler.fail(step, ValueError(), self.now)
            if step.num_sequences > 1:
                parts = list(step.parts())
                self.retrying |= {(p.item, k) for p in parts for k in range(p.start, p.stop)}
        else:
            rows = [expected_rows(batch.slice(s.start, s.stop), s.spec) for s in segments]
            nan = np.array([NAN in batch.sequence(i) for i in range(batch.num_sequences)])
            if not self.isolates_nan:
                nan[:-1] |= nan[1:].copy()  # as into the tile before it
                if step.num_sequences > 1:
                    taken = [(p.item, k) for p in step.parts() for k in range(p.start, p.stop)]
                    self.retrying |= {t for t, bad in zip(taken, nan, strict=True) if bad}
            self.scheduler.complete(step, StepResult(rows, ~nan), self.now)
        self.collect()

    @rule()
    def engine_dies(self) -> None:
        self.scheduler.fail_all(HotbedError(ErrorCode.UNAVAILABLE, "dead"))
        self.collect()
        assert len(self.answers) == len(self.accepted)

    def collect(self) -> None:
        for answer in self.scheduler.take_answers():
            item = answer.item
            assert item not in self.answers, "answered twice"
            assert item in self.accepted, "answered without having been accepted"
            self.answers[item] = answer
            self.check(answer)
        self.waiting = [(i, k) for i, k in self.waiting if i not in self.answers]
        self.retrying = {(i, k) for i, k in self.retrying if i not in self.answers}

    def check(self, answer: Answer) -> None:
        """The answer fits what happened to the item."""
        item, result = answer.item, answer.result
        ids = item.batch.token_ids
        if not isinstance(result, HotbedError):
            assert POISON not in ids
            assert NAN not in ids
            assert item.deadline > self.now
            np.testing.assert_array_equal(result, expected_rows(item.batch, item.spec))
        elif result.code is ErrorCode.INTERNAL:
            assert POISON in ids or NAN in ids
            assert result.param == f"input[{item.num_sequences // 2}]"
        elif result.code is ErrorCode.DEADLINE_EXCEEDED:
            assert item.deadline <= self.now
        else:
            assert result.code in (ErrorCode.CANCELLED, ErrorCode.UNAVAILABLE)

    @invariant()
    def books_balance(self) -> None:
        num_waiting = sum(len(i.batch.sequence(k)) for i, k in self.waiting)
        assert self.scheduler.num_waiting_tokens == num_waiting <= LIMITS.max_queue_tokens
        assert self.scheduler.num_open_items == len(self.accepted) - len(self.answers)
        assert all(i.deadline >= self.scheduler.earliest_deadline for i, _ in self.waiting)

    def teardown(self) -> None:
        """Whatever is left can be finished, and then everything has been answered."""
        while True:
            while self.running:
                self.finish(hiccup=False, seconds=0.0)
            self.take(min_tokens=1)
            if not self.running:
                break
        assert len(self.answers) == len(self.accepted), "an item was never answered"


TestScheduler = SchedulerModel.TestCase
TestScheduler.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


class LeakyModel(SchedulerModel):
    """The same where a NaN reaches the sequence before its own."""

    isolates_nan = False


TestLeakyEngine = LeakyModel.TestCase
TestLeakyEngine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
