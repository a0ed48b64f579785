"""What waits for a step, and whose turn it is: clients in turn, oldest items first within each.

A client's turn lasts until it has taken a quantum of tokens; what it takes above that, because
sequences are whole and small items are not torn, is taken off its next turn. That is surplus round
robin (Adiseshu, Parulkar and Varghese 1996). An item that is larger than a quantum goes behind the
other items of its client after each quantum. So neither a client that sends much nor one huge item
makes others wait for its end, and items of up to a quantum keep their order within their client.
`bench.scheduler` measures this order against others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import numpy as np

from hotbed.tulip.work import Item, Part

TURNS_A_STEP = 8
"""Quanta in a step's token budget; docs/scheduling.md has the measurement."""


class _Client:
    __slots__ = ("credit", "items", "num_tokens")

    def __init__(self) -> None:
        self.items: OrderedDict[Item, None] = OrderedDict()
        self.num_tokens = 0
        self.credit = 0  # tokens left of its turn; below zero: taken from its next one


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
            yield from client.items

    def add(self, item: Item) -> None:
        """All of the item's sequences wait now, behind its client's other items."""
        client = self._clients.get(item.client)
        if client is None:
            client = self._clients[item.client] = _Client()
        client.items[item] = None
        client.num_tokens += item.num_waiting_tokens
        self.num_tokens += item.num_waiting_tokens

    def tokens_of(self, client: object) -> int:
        """Tokens of this client's sequences that wait."""
        found = self._clients.get(client)
        return 0 if found is None else found.num_tokens

    def discard(self, item: Item) -> None:
        """Nothing of the item waits any more; nothing happens if nothing did."""
        client = self._clients.get(item.client)
        if client is not None and item in client.items:
            self.num_tokens -= item.num_waiting_tokens
            client.num_tokens -= item.num_waiting_tokens
            self._drop(item, client)

    def take(self, max_tokens: int, max_sequences: int) -> list[Part]:
        """The next sequences within both budgets, at least one if any waits.

        Nothing overtakes a sequence that does not fit what is left of the step, so a long one
        comes to run, alone where it is longer than the whole budget.
        """
        parts: list[Part] = []
        while self._clients and max_tokens > 0 and max_sequences > 0:
            client = next(iter(self._clients.values()))
            item = next(iter(client.items))
            if client.credit <= 0:
                client.credit += self._quantum
                if client.credit <= 0:
                    self._clients.move_to_end(item.client)
                    continue
            part = self._take_of(item, max_tokens, max_sequences, is_first=not parts)
            if part is None:
                break
            parts.append(part)
            max_tokens -= part.num_tokens
            max_sequences -= part.stop - part.start
            self._account(part, client)
        return parts

    def _take_of(
        self, item: Item, max_tokens: int, max_sequences: int, *, is_first: bool
    ) -> Part | None:
        """Up to a quantum of the item, or one longer sequence; None if the step has no room."""
        start = item.num_taken
        within = max_tokens
        if item.num_waiting_tokens < self.num_tokens:  # others wait too
            within = min(max_tokens, self._quantum)
        stop = _fitting(item, within, max_sequences)
        if stop == start:
            cu = item.batch.cu_seqlens
            if not is_first and int(cu[start + 1] - cu[start]) > max_tokens:
                return None
            stop = start + 1
        part = Part.of(item, start, stop)
        item.num_taken = stop
        item.num_waiting_tokens -= part.num_tokens
        self.num_tokens -= part.num_tokens
        return part

    def _account(self, part: Part, client: _Client) -> None:
        item = part.item
        client.credit -= part.num_tokens
        client.num_tokens -= part.num_tokens
        is_over = client.credit <= 0
        if part.stop == item.num_sequences:
            self._drop(item, client)
            is_over = is_over and item.client in self._clients
        elif part.num_tokens + item.num_waiting_tokens > self._quantum:
            client.items.move_to_end(item)
        if len(self._clients) == 1:
            client.credit = 0  # nobody had to wait for what it took
        elif is_over:
            self._clients.move_to_end(item.client)

    def _drop(self, item: Item, client: _Client) -> None:
        del client.items[item]
        if not client.items:
            del self._clients[item.client]


def _fitting(item: Item, max_tokens: int, max_sequences: int) -> int:
    """Index after the item's last sequence that still fits, counted from the first not taken."""
    start = item.num_taken
    if item.num_waiting_tokens <= max_tokens and item.num_sequences - start <= max_sequences:
        return item.num_sequences
    cu = item.batch.cu_seqlens
    stop = int(np.searchsorted(cu, int(cu[start]) + max_tokens, side="right")) - 1
    return max(start, min(stop, start + max_sequences))
