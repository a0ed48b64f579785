"""The pure balancer, against its promises and a plain model."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotbed.ivy.balance import Balance, Lease


def down(num_replicas: int, **options: float) -> Balance:
    balance = Balance(**options)  # type: ignore[arg-type]
    for replica in range(num_replicas):
        balance.add(replica)
    return balance


def up(num_replicas: int, **options: float) -> Balance:
    balance = down(num_replicas, **options)
    for replica in range(num_replicas):
        balance.mark_up(replica)
    return balance


def test_nobody_is_picked_before_a_replica_is_up():
    assert down(3).pick(10) is None


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
    balance = down(4)
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


def test_a_replica_that_came_up_gets_a_growing_share():
    balance = down(2, slow_start_s=10)
    balance.mark_up(0, now=0)
    balance.mark_up(1, now=100)

    def share(now: float) -> float:
        leases = [balance.pick(10, now=now) for _ in range(200)]
        picked = [lease.replica for lease in leases if lease]
        for lease in leases:
            balance.release(lease)
        return picked.count(1) / len(picked)

    assert share(100) == pytest.approx(1 / 11, abs=0.02)
    assert share(105) == pytest.approx(1 / 3, abs=0.02)
    assert share(110) == pytest.approx(1 / 2, abs=0.02)


def test_the_only_replica_is_picked_however_new_it_is():
    balance = down(1, slow_start_s=10)
    balance.mark_up(0, now=5)
    assert balance.pick(10, now=5) is not None


def fail(balance: Balance, replica: int, now: float, times: int = 1) -> list[bool]:
    others = {(r, 1) for r in range(4) if r != replica}
    outcomes = []
    for _ in range(times):
        lease = balance.pick(1, others, now)
        assert lease is not None
        outcomes.append(balance.failed(lease, now))
        balance.release(lease)
    return outcomes


def test_a_failing_replica_is_left_out_longer_each_time_until_it_answers():
    balance = up(2, eject_after=3, ejection_s=5)
    assert fail(balance, 0, now=0, times=3) == [False, False, True]
    for _ in range(5):
        lease = balance.pick(1, now=4.9)
        assert lease is not None
        assert lease.replica == 1
    assert fail(balance, 0, now=5) == [True]  # one more failure, twice the time
    assert balance.is_ejected(0, 14.9)
    lease = balance.pick(1, {(1, 1)}, now=15)
    assert lease is not None
    balance.succeeded(lease)
    assert fail(balance, 0, now=16, times=2) == [False, False]


def test_failures_between_answers_do_not_add_up():
    balance = up(2, eject_after=2)
    for _ in range(5):
        assert fail(balance, 0, now=0) == [False]
        lease = balance.pick(1, {(1, 1)})
        assert lease is not None
        balance.succeeded(lease)
        balance.release(lease)


def test_at_most_half_are_left_out_and_a_single_one_never():
    balance = up(3, eject_after=1)
    assert fail(balance, 0, now=0) == [True]
    assert fail(balance, 1, now=0) == [False]
    assert fail(up(1, eject_after=1), 0, now=0) == [False]


def test_an_ejected_replica_is_still_better_than_none():
    balance = up(2, eject_after=1)
    fail(balance, 0, now=0)
    lease = balance.pick(1, {(1, 1)}, now=0)
    assert lease is not None
    assert lease.replica == 0


def test_a_replica_that_left_takes_nothing_more_but_its_leases_can_be_given_back():
    balance = up(2)
    leases = [balance.pick(5), balance.pick(5)]
    balance.remove(0)
    assert balance.num_up == 1
    for _ in range(3):
        lease = balance.pick(1)
        assert lease is not None
        assert lease.replica == 1
        balance.release(lease)
    for lease in leases:
        assert lease is not None
        balance.release(lease)
    balance.add(7)
    balance.mark_up(7)
    assert balance.num_up == 2
