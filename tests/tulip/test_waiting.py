"""Symptoms guarded: one client or one huge item makes the others wait; a long sequence starves."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.tulip.waiting import Waiting
from hotbed.tulip.work import Item, Part

QUANTUM, BUDGET, SEQUENCES = 8, 32, 100


def item(*lengths: int, client: object = "a", tag: int = 0) -> Item:
    batch = RaggedBatch.from_lengths(np.zeros(sum(lengths), np.int32), np.array(lengths, np.int32))
    return Item(batch, OutputSpec(), on_answer=lambda _: None, client=client, tag=tag)


def fill(*items: Item) -> Waiting:
    waiting = Waiting(QUANTUM)
    for each in items:
        waiting.add(each)
    return waiting


def by_client(parts: list[Part]) -> Counter[object]:
    counts: Counter[object] = Counter()
    for part in parts:
        counts[part.item.client] += part.num_tokens
    return counts


def test_a_flood_of_one_client_leaves_another_its_share_of_the_next_step() -> None:
    waiting = fill(*(item(4, client="flood") for _ in range(1000)))
    waiting.take(BUDGET, SEQUENCES)
    for _ in range(4):
        waiting.add(item(4, client="late"))
    assert by_client(waiting.take(BUDGET, SEQUENCES)) == {"flood": 16, "late": 16}


def test_small_items_of_the_same_client_do_not_wait_for_the_end_of_a_huge_one() -> None:
    huge = item(*[4] * 100)
    waiting = fill(huge)
    waiting.take(BUDGET, SEQUENCES)
    small = item(3)
    waiting.add(small)
    assert small in [part.item for part in waiting.take(BUDGET, SEQUENCES)]


def test_a_huge_item_gets_on_under_a_stream_of_small_ones() -> None:
    huge = item(*[4] * 8)
    waiting = fill(huge)
    for _ in range(20):
        for _ in range(8):
            waiting.add(item(4))  # as much as a step holds, every time
        waiting.take(BUDGET, SEQUENCES)
        if huge.num_taken == huge.num_sequences:
            return
    raise AssertionError(f"{huge.num_taken} sequences after 20 steps")


def test_of_equal_large_items_of_a_client_the_first_one_ends_first() -> None:
    # Side by side none of them would end before all do.
    large = [item(*[4] * 10, tag=tag) for tag in range(6)]
    waiting = fill(*large)
    ends = []
    while parts := waiting.take(BUDGET, SEQUENCES):
        ends += [p.item.tag for p in parts if p.stop == p.item.num_sequences]
        assert len({p.item.tag for p in parts}) <= 2
    assert ends == list(range(6))


def test_sizes_of_a_client_take_turns_so_that_none_waits_for_the_end_of_a_larger_one() -> None:
    waiting = fill(item(*[4] * 100, tag=0), item(*[4] * 6, tag=1), item(3, tag=2))
    parts = waiting.take(BUDGET, SEQUENCES)
    assert {part.item.tag for part in parts} == {0, 1, 2}


def test_a_lone_item_is_taken_whole() -> None:
    assert [(p.start, p.stop) for p in fill(item(*[4] * 8)).take(BUDGET, SEQUENCES)] == [(0, 8)]


def test_small_items_keep_their_order_within_a_client() -> None:
    waiting = fill(*(item(3, 2, tag=tag) for tag in range(30)))
    tags = []
    while parts := waiting.take(BUDGET, SEQUENCES):
        tags += [part.item.tag for part in parts]
    assert tags == sorted(tags)


def test_a_sequence_longer_than_the_step_runs_alone_and_soon() -> None:
    waiting = fill(*(item(4, client="short") for _ in range(100)))
    waiting.add(item(50, client="long"))
    for _ in range(3):
        parts = waiting.take(BUDGET, SEQUENCES)
        if parts[0].item.client == "long":
            assert len(parts) == 1
            return
        assert "long" not in by_client(parts), "beside others"
    raise AssertionError("the long sequence starves")


def test_who_was_alone_owes_nothing_afterwards() -> None:
    waiting = fill(*(item(4, client="old") for _ in range(100)))
    waiting.take(BUDGET, SEQUENCES)
    waiting.take(BUDGET, SEQUENCES)
    waiting.add(item(4, client="new"))
    assert by_client(waiting.take(BUDGET, SEQUENCES)) == {"old": 28, "new": 4}


def test_what_is_discarded_is_not_taken_and_not_counted() -> None:
    first, second = item(4, client="a"), item(*[4] * 10, client="b")
    waiting = fill(first, second)
    waiting.discard(first)
    waiting.discard(first)
    assert waiting.num_tokens == 40
    waiting.take(BUDGET, SEQUENCES)
    waiting.discard(second)
    assert waiting.num_tokens == 0
    assert list(waiting) == []
    assert waiting.take(BUDGET, SEQUENCES) == []


LONGEST = 24


@given(
    backlog=st.lists(
        st.lists(st.lists(st.integers(1, LONGEST), min_size=1, max_size=20), min_size=1),
        min_size=2,
        max_size=4,
    )
)
def test_clients_that_always_have_work_get_the_same_within_a_bound(
    backlog: list[list[list[int]]],
) -> None:
    """The fairness of surplus round robin: who waits all the time is never far behind."""
    waiting = Waiting(QUANTUM)
    for client, items in enumerate(backlog):
        for lengths in items:
            waiting.add(item(*lengths, client=str(client)))
    served: Counter[object] = Counter()
    left = {str(c): sum(map(sum, items)) for c, items in enumerate(backlog)}
    total = sum(left.values())
    while parts := waiting.take(BUDGET, SEQUENCES):
        for part in parts:
            served[part.item.client] += part.num_tokens
            left[part.item.client] -= part.num_tokens
            waits = [served[c] for c, tokens in left.items() if tokens]
            if len(waits) < len(backlog):
                continue
            # A turn, and what it ran over by, of the one ahead and of the one behind.
            assert max(waits) - min(waits) <= 2 * (QUANTUM + LONGEST)
    assert sum(served.values()) == total
    assert waiting.num_tokens == 0


LONG = 12
NUM_LANES = 5  # 8 sequences of 12 tokens are 12 quanta


def lane_of(item: Item) -> int:
    """Up to a quantum, up to two, up to four, and so on."""
    return math.ceil(math.log2(math.ceil(item.num_tokens / QUANTUM)))


class Traffic(RuleBasedStateMachine):
    """Whatever comes meanwhile: who has work waits a bounded time, also with debts of long ones."""

    CLIENTS = (b"a", b"b", "a stream")

    def __init__(self) -> None:
        super().__init__()
        self.waiting = Waiting(QUANTUM)
        self.order: dict[object, list[Item]] = {client: [] for client in self.CLIENTS}
        self.others: Counter[object] = Counter()  # tokens of others since its last turn
        self.other_lanes: Counter[object] = Counter()  # the same within a client

    @rule(
        client=st.sampled_from(CLIENTS),
        items=st.lists(
            st.lists(st.integers(1, LONG), min_size=1, max_size=8), min_size=1, max_size=4
        ),
        times=st.integers(1, 10),
    )
    def arrive(self, client: object, items: list[list[int]], times: int) -> None:
        if not self.order[client]:
            self.others[client] = 0
        for lengths in items * times:
            made = item(*lengths, client=client)
            if all(lane_of(made) != lane_of(i) for i in self.order[client]):
                self.other_lanes[client, lane_of(made)] = 0
            self.waiting.add(made)
            self.order[client].append(made)

    @precondition(lambda self: any(self.order.values()))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        left = data.draw(st.sampled_from([i for items in self.order.values() for i in items]))
        self.waiting.discard(left)
        self.order[left.client].remove(left)

    @precondition(lambda self: any(self.order.values()))
    @rule(num_steps=st.integers(1, 30))
    def take(self, num_steps: int) -> None:
        for _ in range(num_steps):
            if any(self.order.values()):
                self.take_one()
                self.nobody_starves()

    def take_one(self) -> None:
        parts = self.waiting.take(BUDGET, SEQUENCES)
        assert parts
        for part in parts:
            mine = self.order[part.item.client]
            lane = lane_of(part.item)
            assert part.item is next(i for i in mine if lane_of(i) == lane), "overtaken"
            for client in self.CLIENTS:
                if client != part.item.client:
                    self.others[client] += part.num_tokens
            self.others[part.item.client] = 0
            for waits in {lane_of(i) for i in mine} - {lane}:
                self.other_lanes[part.item.client, waits] += part.num_tokens
            self.other_lanes[part.item.client, lane] = 0
            if part.stop == part.item.num_sequences:
                mine.remove(part.item)

    @invariant()
    def nobody_starves(self) -> None:
        # A client's debt is below what one sequence, or a torn item, ran over its turn by; it is
        # paid in turns of a quantum, and in each round every other has one and runs over as far.
        rounds = 1 + -(-LONG // QUANTUM)
        bound = rounds * (len(self.CLIENTS) - 1) * (QUANTUM + LONG)
        for client, items in self.order.items():
            if items:
                assert self.others[client] <= bound
            lanes = {lane_of(i) for i in items}
            for lane in lanes:
                assert self.other_lanes[client, lane] <= rounds * NUM_LANES * (QUANTUM + LONG)

    @invariant()
    def books_balance(self) -> None:
        left = sum(i.num_waiting_tokens for items in self.order.values() for i in items)
        assert self.waiting.num_tokens == left


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
