"""The second replica for a slow chunk."""

from __future__ import annotations

import asyncio

import pytest

from hotbed.ivy.hedge import Hedging, race


def test_the_wait_is_the_95th_percentile_of_chunks_of_that_size():
    hedging = Hedging()
    for i in range(100):
        hedging.note(100, i / 100)
    assert hedging.wait_s(100) == pytest.approx(0.95, abs=0.06)
    assert hedging.wait_s(100_000) is None


def test_nothing_is_hedged_before_enough_is_known():
    hedging = Hedging()
    for _ in range(31):
        hedging.note(100, 1.0)
    assert hedging.wait_s(100) is None


def test_hedges_are_a_small_part_of_all_calls():
    hedging = Hedging()
    num_hedges = 0
    for _ in range(1000):
        hedging.note(100, 1.0)
        if hedging.wait_s(100) is not None:
            hedging.spend()
            num_hedges += 1
    assert num_hedges <= 1000 * 0.05 + 3


async def value(result, *, after: asyncio.Event | None = None):
    if after is not None:
        await after.wait()
    if isinstance(result, Exception):
        raise result
    return result


async def test_a_quick_first_one_is_never_doubled():
    def second():
        raise AssertionError("asked")

    assert await race(value(1), second, wait_s=5) == 1


async def test_a_slow_first_one_loses_to_the_second_and_is_cancelled():
    never = asyncio.Event()
    first = asyncio.ensure_future(value(1, after=never))
    assert await race(first, lambda: value(2), wait_s=0.01) == 2
    assert first.cancelled()


async def test_the_first_one_still_wins_if_the_second_fails():
    gate = asyncio.Event()

    async def failing():
        gate.set()
        raise RuntimeError("second")

    assert await race(value(1, after=gate), failing, wait_s=0.01) == 1


async def test_without_anybody_else_the_first_one_is_waited_for():
    gate = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, gate.set)
    assert await race(value(1, after=gate), lambda: None, wait_s=0.01) == 1


async def test_where_both_fail_it_is_a_failure():
    gate = asyncio.Event()

    async def second():
        try:
            raise RuntimeError("second")
        finally:
            gate.set()

    with pytest.raises(RuntimeError, match=r"first|second"):
        await race(value(RuntimeError("first"), after=gate), second, wait_s=0.01)


async def test_a_cancelled_race_cancels_both():
    never, asked = asyncio.Event(), asyncio.Event()
    tasks = []

    def second():
        asked.set()
        tasks.append(asyncio.ensure_future(value(2, after=never)))
        return tasks[-1]

    tasks.append(asyncio.ensure_future(value(1, after=never)))
    racing = asyncio.ensure_future(race(tasks[0], second, wait_s=0.01))
    await asked.wait()
    racing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await racing
    assert all(task.cancelled() for task in tasks)
