"""Synthetic and recorded traffic for `bench.scheduler`.

A recorded trace is a file with one JSON object a line: ``{"at_s": 0.0123, "client": "a", "kind":
"query", "lengths": [17, 9]}``, the time and the tokens of each sequence of one item.
`hotbed tulip --record-traffic FOLDER` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Arrival:
    """One item: when, from whom, of which kind, and the length of each sequence."""

    at_s: float
    client: str
    kind: str
    lengths: tuple[int, ...]


class StepCost(Protocol):
    """What one step takes."""

    def seconds(self, lengths: np.ndarray) -> float: ...


Rng = np.random.Generator
Make = Callable[[Rng], tuple[int, ...]]


def query(rng: Rng) -> tuple[int, ...]:
    """A short text: 4 to 64 tokens, most about 14."""
    return (int(np.clip(rng.lognormal(2.6, 0.5), 4, 64)),)


def document(_: Rng) -> tuple[int, ...]:
    return (512,)


def long_document(_: Rng) -> tuple[int, ...]:
    return (8192,)


def huge(_: Rng) -> tuple[int, ...]:
    """The largest item that a replica takes by default: 131,072 tokens in one."""
    return (512,) * 256


def stream(
    rng: Rng,
    seconds: float,
    cost: StepCost,
    *,
    make: Make,
    load: float,
    kind: str,
    clients: int = 1,
) -> list[Arrival]:
    """Poisson arrivals that keep the device busy for the share `load` of the time.

    An item is counted as its part of a full step of such items.
    """
    samples = [make(rng) for _ in range(200)]
    mean_s = float(np.mean([cost.seconds(np.array(s * 16)) / 16 for s in samples]))
    rate = load / mean_s
    times = np.cumsum(rng.exponential(1 / rate, max(1, int(rate * seconds * 1.2) + 10)))
    return [
        Arrival(float(at), f"{kind} {rng.integers(clients)}", kind, make(rng))
        for at in times[times < seconds]
    ]


def queries(rng: Rng, seconds: float, cost: StepCost) -> list[Arrival]:
    return stream(rng, seconds, cost, make=query, load=0.7, kind="query", clients=8)


def documents(rng: Rng, seconds: float, cost: StepCost) -> list[Arrival]:
    return stream(rng, seconds, cost, make=document, load=0.7, kind="document", clients=8)


def long_documents(rng: Rng, seconds: float, cost: StepCost) -> list[Arrival]:
    return stream(rng, seconds * 4, cost, make=long_document, load=0.7, kind="long", clients=8)


def bursts(rng: Rng, seconds: float, cost: StepCost) -> list[Arrival]:
    """Queries, and every half second 200 documents from one client at once."""
    made = stream(rng, seconds, cost, make=query, load=0.1, kind="query", clients=8)
    for at in np.arange(0.25, seconds, 0.5):
        made += [Arrival(float(at), "burst", "burst", document(rng)) for _ in range(200)]
    return made


def mixed(rng: Rng, seconds: float, cost: StepCost) -> list[Arrival]:
    """Many who ask, some who index, one with long texts and one with the largest items."""
    return [
        *stream(rng, seconds, cost, make=query, load=0.05, kind="query", clients=16),
        *stream(rng, seconds, cost, make=document, load=0.25, kind="document", clients=4),
        *stream(rng, seconds, cost, make=long_document, load=0.1, kind="long"),
        *stream(rng, seconds, cost, make=huge, load=0.4, kind="huge"),
    ]


def one_client(rng: Rng, seconds: float, cost: StepCost) -> list[Arrival]:
    """The same from behind one gateway, which is one client."""
    return [Arrival(a.at_s, "ivy", a.kind, a.lengths) for a in mixed(rng, seconds, cost)]


def flood(rng: Rng, seconds: float, cost: StepCost) -> list[Arrival]:
    """One client sends 1.3 times what the device can do, eight others a little."""
    return [
        *stream(rng, seconds, cost, make=query, load=0.05, kind="query", clients=8),
        *stream(rng, seconds, cost, make=document, load=1.3, kind="flood"),
    ]


def flood_gateway(rng: Rng, seconds: float, cost: StepCost) -> list[Arrival]:
    """The same flood through one gateway that names no tenants, so that all are one client."""
    return [Arrival(a.at_s, "ivy", a.kind, a.lengths) for a in flood(rng, seconds, cost)]


def chunks(rng: Rng, seconds: float, cost: StepCost) -> list[Arrival]:
    """An indexer behind one gateway: every half second 12 chunks of a step each; and queries."""
    made = stream(rng, seconds, cost, make=query, load=0.05, kind="query")
    for at in np.arange(0.25, seconds, 0.5):
        made += [Arrival(float(at), "ivy", "chunk", (512,) * 16) for _ in range(12)]
    return [Arrival(a.at_s, "ivy", a.kind, a.lengths) for a in made]


def alike(rng: Rng, seconds: float, cost: StepCost) -> list[Arrival]:
    """A flood of documents beside eight clients that send a few documents of the same size."""
    return [
        *stream(rng, seconds, cost, make=document, load=0.05, kind="document", clients=8),
        *stream(rng, seconds, cost, make=document, load=1.3, kind="flood"),
    ]


def alike_gateway(rng: Rng, seconds: float, cost: StepCost) -> list[Arrival]:
    """The same through one gateway that names no tenants."""
    return [Arrival(a.at_s, "ivy", a.kind, a.lengths) for a in alike(rng, seconds, cost)]


SCENARIOS: dict[str, Callable[[Rng, float, StepCost], list[Arrival]]] = {
    "queries": queries,
    "documents": documents,
    "long": long_documents,
    "bursts": bursts,
    "mixed": mixed,
    "one_client": one_client,
    "chunks": chunks,
    "flood": flood,
    "flood_gateway": flood_gateway,
    "alike": alike,
    "alike_gateway": alike_gateway,
}


def read_trace(path: Path) -> Sequence[Arrival]:
    """The arrivals of a recorded trace.

    Raises:
        ValueError: a line is not as the module says; it is named by its number.
    """
    arrivals = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            r = json.loads(line)
            lengths = tuple(int(n) for n in r["lengths"])
            arrivals.append(Arrival(float(r["at_s"]), str(r["client"]), str(r["kind"]), lengths))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number}: {error!r}") from error
        if not lengths or min(lengths) < 1:
            raise ValueError(f"{path}, line {number}: lengths must be 1 or more")
    if not arrivals:
        raise ValueError(f"{path} holds no arrivals")
    return arrivals
