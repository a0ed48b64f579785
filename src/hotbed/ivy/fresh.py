"""A value that costs something to make, kept for a moment for all who ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Fresh(Generic[T]):
    """What `make` gave last; made anew once it is older than `max_age_s`.

    Args:
        make: never runs twice at the same time.
        max_age_s: counted from the start of the making.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]], *, max_age_s: float) -> None:
        self._make = make
        self._max_age_s = max_age_s
        self._making: asyncio.Task[T] | None = None
        self._begun_at = 0.0

    async def get(self) -> T:
        """The value; raises what making it raised."""
        now = asyncio.get_running_loop().time()
        making = self._making
        if making is None or (making.done() and now - self._begun_at >= self._max_age_s):
            making = self._making = asyncio.create_task(self._make())
            self._begun_at = now
        # Who asks may go away; the others still wait for it.
        return await asyncio.shield(making)
