"""A second replica for a chunk whose first one is slower than 95 of 100 were.

Dean and Barroso, "The tail at scale" (2013): a few percent more work takes most of the tail. Off
by default: it helps where replicas stall now and then, not where all are busy.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_QUANTILE = 0.95
_WINDOW = 256
_ENOUGH = 32
# Hedges may be this part of all calls, with a few to begin with.
_SHARE = 0.05
_BURST = 3.0


class Hedging:
    """When to hedge: recent times by size of the chunk, and a budget of hedges."""

    def __init__(self) -> None:
        self._times: dict[int, deque[float]] = {}
        self._limits: dict[int, float] = {}
        self._budget = _BURST

    def note(self, tokens: int, seconds: float) -> None:
        """One call of so many tokens took so long."""
        size = tokens.bit_length()
        times = self._times.setdefault(size, deque(maxlen=_WINDOW))
        times.append(seconds)
        self._budget = min(self._budget + _SHARE, _BURST)
        # Sorting 256 numbers takes 10 us: every eighth call is often enough.
        if len(times) >= _ENOUGH and (size not in self._limits or len(times) % 8 == 0):
            self._limits[size] = sorted(times)[int(len(times) * _QUANTILE)]

    def wait_s(self, tokens: int) -> float | None:
        """How long to wait for the first replica; None: it is not known yet, or budget is spent."""
        return self._limits.get(tokens.bit_length()) if self._budget >= 1 else None

    def spend(self) -> None:
        """A hedge was sent."""
        self._budget -= 1


async def race(
    first: Awaitable[T], second: Callable[[], Awaitable[T] | None], *, wait_s: float
) -> T:
    """Result of `first`; past `wait_s` that of whichever is done first.

    Args:
        first: the call.
        second: makes the other call, or None if there is nobody to ask.
        wait_s: how long to wait before it.

    The loser is cancelled. Where one fails the other decides; where both fail the first error
    is raised.
    """
    tasks: list[asyncio.Future[T]] = [asyncio.ensure_future(first)]
    try:
        await asyncio.wait(tasks, timeout=wait_s)
        if not tasks[0].done():
            other = second()
            if other is not None:
                tasks.append(asyncio.ensure_future(other))
        pending = set(tasks)
        error: BaseException | None = None
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in filter(done.__contains__, tasks):
                failure = task.exception()
                if failure is None:
                    return task.result()
                error = error or failure
        assert error is not None
        raise error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
