"""Run a coroutine function over items, a few at a time, results in the items' order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def map_bounded(
    function: Callable[[T], Awaitable[R]], items: Sequence[T], *, limit: int
) -> list[R]:
    """`function` of each item, at most `limit` running at a time.

    The first failure cancels what still runs and is raised; nothing is left running. A single
    item costs no task.
    """
    if len(items) == 1:
        return [await function(items[0])]
    results: dict[int, R] = {}
    waiting = iter(enumerate(items))

    async def worker() -> None:
        for index, item in waiting:
            results[index] = await function(item)

    tasks = [asyncio.ensure_future(worker()) for _ in range(min(limit, len(items)))]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    return [results[index] for index in range(len(items))]
