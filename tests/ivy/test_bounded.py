"""map_bounded: order, bound, failure, and nothing left running."""

from __future__ import annotations

import asyncio

import pytest

from hotbed.ivy.bounded import map_bounded


async def test_results_are_in_the_items_order_whatever_finishes_first():
    gates = [asyncio.Event() for _ in range(4)]

    async def wait(index: int) -> int:
        await gates[index].wait()
        return index * 10

    async def open_gates() -> None:
        for gate in reversed(gates):
            gate.set()
            await asyncio.sleep(0)

    opener = asyncio.ensure_future(open_gates())
    assert await map_bounded(wait, range(4), limit=4) == [0, 10, 20, 30]
    await opener


async def test_no_more_than_the_limit_run_at_a_time():
    running = most = 0

    async def count(index: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return index

    assert await map_bounded(count, range(20), limit=3) == list(range(20))
    assert most == 3


async def test_the_first_failure_cancels_the_rest_and_leaves_no_task():
    before = asyncio.all_tasks()
    cancelled = []

    async def fail_on_two(index: int) -> int:
        if index == 2:
            raise ValueError("two")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(index)
            raise
        return index

    with pytest.raises(ValueError, match="two"):
        await map_bounded(fail_on_two, range(8), limit=4)
    assert sorted(cancelled) == [0, 1, 3]
    assert asyncio.all_tasks() == before


async def test_cancelling_the_caller_cancels_the_items():
    started = asyncio.Event()
    cancelled = []

    async def wait(index: int) -> int:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(index)
            raise
        return index

    task = asyncio.ensure_future(map_bounded(wait, range(5), limit=2))
    await started.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(cancelled) == [0, 1]
