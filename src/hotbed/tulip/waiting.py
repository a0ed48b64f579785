"""What waits for a step, and whose turn it is: clients in turn, and sizes in turn within each.

A turn lasts until a quantum of tokens has been taken; what is taken above that, because sequences
are whole and small items are not torn, is taken off the next turn. That is surplus round robin
(Adiseshu, Parulkar and Varghese 1996), once over clients and within a client once over lanes. A
lane holds items of about one size: all of up to a quantum, then a lane for each doubling. Within a
lane the oldest goes first. So neither a client that sends much nor one huge item makes others wait
for its end, and of equal items the first one ends first. `bench.scheduler` measures this order
against others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Protocol, TypeVar

import numpy as np

from hotbed.tulip.work import Item, Part

TURNS_A_STEP = 32
"""Quanta in a step's token budget; docs/scheduling.md has the measurement."""


class _Lane:
    __slots__ = ("credit", "items")

    def __init__(self) -> None:
        self.items: OrderedDict[Item, None] = OrderedDict()
        self.credit = 0  # tokens left of its turn; below zero: taken from its next one


class _Client:
    __slots__ = ("credit", "lanes", "num_tokens")

    def __init__(self) -> None:
        self.lanes: OrderedDict[int, _Lane] = OrderedDict()
        self.num_tokens = 0
        self.credit = 0


class _TakesTurns(Protocol):
    credit: int


K = TypeVar("K")
T = TypeVar("T", bound=_TakesTurns)


class Waiting:
    """Items of which sequences wait; every sequence is taken once, those of an item in order.

    Args:
        quantum_tokens: of a turn, at least 1.
    """

    def __init__(self, quantum_tokens: int) -> None:
        self.num_tokens = 0
        """Tokens of the sequences that wait."""
        self._quantum = quantum_tokens
        self._clients: OrderedDict[object, _Client] = OrderedDict()

    def __iter__(self) -> Iterator[Item]:
        for client in self._clients.values():
            for lane in client.lanes.values():
                yield from lane.items

    def add(self, item: Item) -> None:
        """All of the item's sequences wait now, behind those of its lane."""
        client = self._clients.get(item.client)
        if client is None:
            client = self._clients[item.client] = _Client()
        number = self._lane_of(item)
        lane = client.lanes.get(number)
        if lane is None:
            lane = client.lanes[number] = _Lane()
        lane.items[item] = None
        client.num_tokens += item.num_waiting_tokens
        self.num_tokens += item.num_waiting_tokens

    def tokens_of(self, client: object) -> int:
        """Tokens of this client's sequences that wait."""
        found = self._clients.get(client)
        return 0 if found is None else found.num_tokens

    def discard(self, item: Item) -> None:
        """Nothing of the item waits any more; nothing happens if nothing did."""
        client = self._clients.get(item.client)
        if client is None:
            return
        lane = client.lanes.get(self._lane_of(item))
        if lane is not None and item in lane.items:
            self.num_tokens -= item.num_waiting_tokens
            client.num_tokens -= item.num_waiting_tokens
            self._drop(item, client, lane)

    def take(self, max_tokens: int, max_sequences: int) -> list[Part]:
        """The next sequences within both budgets, at least one if any waits.

        Nothing overtakes a sequence that does not fit what is left of the step, so a long one
        comes to run, alone where it is longer than the whole budget. An item that had several
        turns has one part.
        """
        taken: dict[Item, int] = {}  # and where its part begins
        while self._clients and max_tokens > 0 and max_sequences > 0:
            client = _whose_turn(self._clients, self._quantum)
            lane = _whose_turn(client.lanes, self._quantum)
            item = next(iter(lane.items))
            start = item.num_taken
            num_tokens = self._take_of(item, max_tokens, max_sequences, is_first=not taken)
            if num_tokens == 0:
                break
            taken.setdefault(item, start)
            max_tokens -= num_tokens
            max_sequences -= item.num_taken - start
            client.num_tokens -= num_tokens
            _spend(client.lanes, self._lane_of(item), num_tokens)
            _spend(self._clients, item.client, num_tokens)
            if item.num_taken == item.num_sequences:
                self._drop(item, client, lane)
        return [Part.of(item, start, item.num_taken) for item, start in taken.items()]

    def _lane_of(self, item: Item) -> int:
        return ((item.num_tokens - 1) // self._quantum).bit_length()

    def _take_of(self, item: Item, max_tokens: int, max_sequences: int, *, is_first: bool) -> int:
        """Tokens of up to a quantum of the item, or of one longer sequence; 0: no room for it."""
        start = item.num_taken
        within = max_tokens
        if item.num_waiting_tokens < self.num_tokens:  # others wait too
            within = min(max_tokens, self._quantum)
        stop = _fitting(item, within, max_sequences)
        if stop == start:
            cu = item.batch.cu_seqlens
            if not is_first and int(cu[start + 1] - cu[start]) > max_tokens:
                return 0
            stop = start + 1
        if stop == item.num_sequences:
            num_tokens = item.num_waiting_tokens
        else:
            num_tokens = int(item.batch.cu_seqlens[stop] - item.batch.cu_seqlens[start])
        item.num_taken = stop
        item.num_waiting_tokens -= num_tokens
        self.num_tokens -= num_tokens
        return num_tokens

    def _drop(self, item: Item, client: _Client, lane: _Lane) -> None:
        del lane.items[item]
        if not lane.items:
            del client.lanes[self._lane_of(item)]
            if not client.lanes:
                del self._clients[item.client]


def _whose_turn(waiting: OrderedDict[K, T], quantum: int) -> T:
    """The first whose turn has something left; a new turn begins where it has not."""
    while True:
        key, first = next(iter(waiting.items()))
        if first.credit <= 0:
            first.credit += quantum
            if first.credit <= 0:
                waiting.move_to_end(key)
                continue
        return first


def _spend(waiting: OrderedDict[K, T], key: K, num_tokens: int) -> None:
    """Take tokens off a turn; when it is over, the next one's begins."""
    spender = waiting[key]
    spender.credit -= num_tokens
    if len(waiting) == 1:
        spender.credit = 0  # nobody had to wait for what it took
    elif spender.credit <= 0:
        waiting.move_to_end(key)


def _fitting(item: Item, max_tokens: int, max_sequences: int) -> int:
    """Index after the item's last sequence that still fits, counted from the first not taken."""
    start = item.num_taken
    if item.num_waiting_tokens <= max_tokens and item.num_sequences - start <= max_sequences:
        return item.num_sequences
    cu = item.batch.cu_seqlens
    stop = int(np.searchsorted(cu, int(cu[start]) + max_tokens, side="right")) - 1
    return max(start, min(stop, start + max_sequences))
