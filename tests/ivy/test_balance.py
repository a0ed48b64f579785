"""The pure balancer, against its promises and a plain model."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotbed.ivy.balance import Balance, Lease


def up(num_replicas: int) -> Balance:
    balance = Balance(num_replicas)
    for replica in range(num_replicas):
        balance.mark_up(replica)
    return balance


def test_nobody_is_picked_before_a_replica_is_up():
    assert Balance(3).pick(10) is None


def test_the_replica_with_the_fewest_outstanding_tokens_is_picked():
    balance = up(3)
    picks = [balance.pick(tokens) for tokens in (100, 10, 50, 5)]
    assert [lease.replica for lease in picks if lease] == [0, 1, 2, 1]


def test_idle_replicas_take_turns_instead_of_the_first_one_getting_all():
    balance = up(3)
    seen = []
    for _ in range(6):
        lease = balance.pick(7)
        assert lease is not None
        seen.append(lease.replica)
        balance.release(lease)
    assert seen == [0, 1, 2, 0, 1, 2]


def test_a_replica_that_failed_a_chunk_is_not_picked_for_it_until_it_came_up_anew():
    balance = up(1)
    lease = balance.pick(5)
    assert lease is not None
    balance.release(lease)
    assert balance.pick(5, {lease.key}) is None
    balance.mark_down(0)
    assert balance.pick(5) is None
    balance.mark_up(0)
    again = balance.pick(5, {lease.key})
    assert again is not None
    assert again.replica == 0


def test_marking_up_twice_is_no_new_life():
    balance = up(1)
    lease = balance.pick(1)
    assert lease is not None
    balance.mark_up(0)
    assert balance.pick(1, {lease.key}) is None


def test_a_double_release_is_noticed():
    balance = up(1)
    lease = balance.pick(5)
    assert lease is not None
    balance.release(lease)
    with pytest.raises(AssertionError, match="twice"):
        balance.release(lease)


actions = st.lists(
    st.one_of(
        st.tuples(st.just("up"), st.integers(0, 3)),
        st.tuples(st.just("down"), st.integers(0, 3)),
        st.tuples(st.just("pick"), st.integers(1, 1000)),
        st.tuples(st.just("pick again"), st.integers(1, 1000)),
        st.tuples(st.just("release"), st.integers(0, 50)),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(actions)
def test_any_history_keeps_the_promises(history: list[tuple[str, int]]):
    balance = Balance(4)
    is_up = [False] * 4
    leases: list[Lease] = []
    tried: set[tuple[int, int]] = set()
    for action, value in history:
        if action == "up":
            balance.mark_up(value)
            is_up[value] = True
        elif action == "down":
            balance.mark_down(value)
            is_up[value] = False
        elif action == "release":
            if leases:
                balance.release(leases.pop(value % len(leases)))
        else:
            excluding = tried if action == "pick again" else set()
            before = [balance.outstanding(r) for r in range(4)]
            lease = balance.pick(value, excluding)
            if lease is None:
                assert excluding or not any(is_up)
                continue
            leases.append(lease)
            tried.add(lease.key)
            assert is_up[lease.replica]
            if not excluding:
                assert before[lease.replica] == min(
                    b for b, u in zip(before, is_up, strict=True) if u
                )
        expected = [sum(x.tokens for x in leases if x.replica == r) for r in range(4)]
        assert [balance.outstanding(r) for r in range(4)] == expected
        assert balance.num_up == sum(is_up)
