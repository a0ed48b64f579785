"""Symptom guarded: one tenant takes every place and the others are refused."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hotbed.ivy.shares import Shares


def test_the_last_eighth_is_for_who_holds_few() -> None:
    shares = Shares(16)
    assert sum(shares.take(b"flood") for _ in range(100)) == 14
    assert shares.take(b"other")
    assert shares.take(b"third")
    assert not shares.take(b"fourth")  # full is full
    shares.give_back(b"flood")
    assert not shares.take(b"flood")
    assert shares.take(b"fourth")


def test_without_tenants_every_place_can_be_taken() -> None:
    shares = Shares(16)
    assert sum(shares.take(b"") for _ in range(100)) == 16


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([b"", b"a", b"b", b"c"])), max_size=200))
def test_the_bound_is_kept_and_nothing_is_remembered_of_who_left(
    steps: list[tuple[bool, bytes]],
) -> None:
    shares, held = Shares(16), Counter[bytes]()
    for is_taking, tenant in steps:
        if is_taking:
            before = held.copy()
            if shares.take(tenant):
                held[tenant] += 1
            else:
                assert before.total() >= 14
                assert before.total() == 16 or before[tenant] >= 2
        elif held[tenant]:
            shares.give_back(tenant)
            held[tenant] -= 1
        assert shares.num_taken == held.total() <= 16
    for tenant, count in held.items():
        for _ in range(count):
            shares.give_back(tenant)
    assert shares.num_taken == 0
    assert not shares._of_tenant
