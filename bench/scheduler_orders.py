"""Orders in which waiting items could be taken, behind the interface of `hotbed.tulip.waiting`."""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hotbed.tulip.waiting import TURNS_A_STEP, Waiting
from hotbed.tulip.work import Item, Part


class Fcfs(Waiting):
    """The oldest sequences first, whoever sent them."""

    def __init__(self) -> None:
        super().__init__(1)
        self._items: OrderedDict[Item, None] = OrderedDict()

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def tokens_of(self, client: object) -> int:
        return 0  # the bench's queue has no bound

    def add(self, item: Item) -> None:
        self._items[item] = None
        self.num_tokens += item.num_waiting_tokens

    def discard(self, item: Item) -> None:
        if item in self._items:
            del self._items[item]
            self.num_tokens -= item.num_waiting_tokens

    def take(self, max_tokens: int, max_sequences: int) -> list[Part]:
        parts: list[Part] = []
        while (item := next(iter(self._items), None)) is not None:
            part = take_part(item, max_tokens, max_sequences, is_first=not parts)
            if part is None:
                break
            self.num_tokens -= part.num_tokens
            max_tokens -= part.num_tokens
            max_sequences -= part.stop - part.start
            parts.append(part)
            if part.stop == item.num_sequences:
                del self._items[item]
        return parts


class Sorted(Fcfs):
    """The item of the smallest key first; of equal ones the oldest."""

    def __init__(self, key: Callable[[Item], int]) -> None:
        super().__init__()
        self._key = key
        self._sorted: list[tuple[int, int, Item]] = []
        self._num_added = 0

    def add(self, item: Item) -> None:
        super().add(item)
        self._num_added += 1
        bisect.insort(self._sorted, (self._key(item), self._num_added, item))

    def take(self, max_tokens: int, max_sequences: int) -> list[Part]:
        self._items = OrderedDict((i, None) for _, _, i in self._sorted if i in self._items)
        parts = super().take(max_tokens, max_sequences)
        self._sorted = [entry for entry in self._sorted if entry[2] in self._items]
        return parts


class LengthGrouped(Fcfs):
    """Of the oldest four steps' worth: the sequences whose length is nearest to the oldest's.

    Grouping pays where shorter sequences are padded to the longest; a ragged step has no padding.
    """

    def take(self, max_tokens: int, max_sequences: int) -> list[Part]:
        window, num_tokens = [], 0
        for item in self._items:
            window.append(item)
            num_tokens += item.num_waiting_tokens
            if num_tokens > 4 * max_tokens:
                break
        if not window:
            return []
        oldest = _length(window[0])
        window.sort(key=lambda item: abs(_length(item) - oldest))
        rest = [item for item in self._items if item not in set(window)]
        self._items = OrderedDict.fromkeys(window)
        parts = super().take(max_tokens, max_sequences)
        left = sorted(self._items, key=lambda item: item.accepted_at)
        self._items = OrderedDict.fromkeys([*left, *rest])
        return parts


class TwoLanes(Fcfs):
    """Items of up to `small_tokens` in one lane, larger in the other; half of a step for each.

    What a lane leaves of its half the other may have.
    """

    def __init__(self, small_tokens: int) -> None:
        super().__init__()
        self._small_tokens = small_tokens
        self._lanes = (Fcfs(), Fcfs())

    def __iter__(self) -> Iterator[Item]:
        for lane in self._lanes:
            yield from lane

    def add(self, item: Item) -> None:
        self._lanes[item.num_tokens > self._small_tokens].add(item)
        self.num_tokens += item.num_waiting_tokens

    def discard(self, item: Item) -> None:
        for lane in self._lanes:
            lane.discard(item)
        self.num_tokens = sum(lane.num_tokens for lane in self._lanes)

    def take(self, max_tokens: int, max_sequences: int) -> list[Part]:
        small, large = self._lanes
        budget = max_tokens if not large.num_tokens else max_tokens // 2
        parts: list[Part] = []
        for lane in (small, large, small):
            part_tokens = min(budget, max_tokens) if lane is small and not parts else max_tokens
            if lane.num_tokens and part_tokens > 0 and max_sequences > 0:
                oldest = next(iter(lane))
                if parts and _next_tokens(oldest) > part_tokens:
                    continue
                taken = lane.take(part_tokens, max_sequences)
                parts += taken
                max_tokens -= sum(p.num_tokens for p in taken)
                max_sequences -= sum(p.stop - p.start for p in taken)
        self.num_tokens = small.num_tokens + large.num_tokens
        return parts


class SideBySide(Waiting):
    """Turns in which every item above a quantum has a lane of its own."""

    def _lane_of(self, item: Item) -> int:
        return id(item) if item.num_tokens > self._quantum else 0


class OneLargeLane(Waiting):
    """Turns in which all items above a quantum share one lane: the oldest of them first."""

    def _lane_of(self, item: Item) -> int:
        return int(item.num_tokens > self._quantum)


def _length(item: Item) -> int:
    return item.num_tokens // item.num_sequences


def _next_tokens(item: Item) -> int:
    cu = item.batch.cu_seqlens
    return int(cu[item.num_taken + 1] - cu[item.num_taken])


def take_part(item: Item, max_tokens: int, max_sequences: int, *, is_first: bool) -> Part | None:
    """As many of the item's next sequences as fit, at least one for the first of a step."""
    if max_tokens <= 0 or max_sequences <= 0:
        return None
    start, cu = item.num_taken, item.batch.cu_seqlens
    stop = int(np.searchsorted(cu, int(cu[start]) + max_tokens, side="right")) - 1
    stop = max(min(stop, start + max_sequences, item.num_sequences), start + is_first)
    if stop == start:
        return None
    part = Part.of(item, start, stop)
    item.num_taken = stop
    item.num_waiting_tokens -= part.num_tokens
    return part


ORDERS: dict[str, Any] = {
    "fcfs": lambda budget: Fcfs(),
    "shortest": lambda budget: Sorted(lambda item: item.num_tokens),
    "grouped": lambda budget: LengthGrouped(),
    "two_lanes": lambda budget: TwoLanes(budget // 8),
    "turns": lambda budget: Waiting(budget // TURNS_A_STEP),
    "side_by_side": lambda budget: SideBySide(budget // TURNS_A_STEP),
    "one_large_lane": lambda budget: OneLargeLane(budget // TURNS_A_STEP),
    "turns/2": lambda budget: Waiting(budget // 2),
    "turns/8": lambda budget: Waiting(budget // 8),
    "turns/128": lambda budget: Waiting(budget // 128),
}
"""By name: what makes the order for a token budget. `turns` is Tulip's own."""
