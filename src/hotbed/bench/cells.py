"""What is measured: the suites, each a few cells.

Sizes follow Perplexity's published suites for a GPU (`full`); `small` is the same for a CPU and a
model of 256 tokens; `tiny` only shows that everything works.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Suite = Literal["latency", "scoring", "throughput", "concurrency"]
Size = Literal["full", "small", "tiny"]
Way = Literal["offline", "clients", "http"]
"""How a system is asked: in its process; by several client processes with token ids, where the
system takes them; over HTTP with texts."""

SUITES: tuple[Suite, ...] = ("latency", "scoring", "concurrency", "throughput")
"""In the order of measuring: if time runs out, the last go."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement.

    Attributes:
        suite: that it belongs to.
        way: how the system is asked.
        n: sequences a request.
        tokens: of each sequence, special tokens included.
        concurrency: requests under way at a time.
    """

    suite: Suite
    way: Way
    n: int
    tokens: int
    concurrency: int = 1

    def __str__(self) -> str:
        how = f", {self.concurrency} at a time" if self.concurrency > 1 else ""
        return f"{self.suite} {self.n} x {self.tokens}{how} ({self.way})"


@dataclass(frozen=True, slots=True)
class _Sizes:
    latency_tokens: tuple[int, ...]
    scoring: tuple[tuple[int, int], ...]
    throughput: tuple[tuple[int, int], ...]
    concurrency_tokens: int
    concurrency: tuple[int, ...]
    check_tokens: tuple[int, ...]


_SIZES: dict[Size, _Sizes] = {
    "full": _Sizes(
        latency_tokens=(128, 512, 4096),
        scoring=((5, 512), (25, 512), (50, 512)),
        throughput=((100, 512), (100, 1024), (100, 4096)),
        concurrency_tokens=512,
        concurrency=(1, 2, 4, 8, 16),
        check_tokens=(17, 128, 300, 512, 1024, 4096),
    ),
    "small": _Sizes(
        latency_tokens=(16, 64, 256),
        scoring=((5, 128), (25, 128)),
        throughput=((16, 64), (16, 256)),
        concurrency_tokens=128,
        concurrency=(1, 2, 4, 8),
        check_tokens=(9, 16, 64, 128, 256),
    ),
    "tiny": _Sizes(
        latency_tokens=(8, 32),
        scoring=((3, 32),),
        throughput=((4, 16),),
        concurrency_tokens=16,
        concurrency=(1, 2),
        check_tokens=(8, 16, 32),
    ),
}


def cells(suites: tuple[Suite, ...], size: Size, *, task: str, num_clients: int) -> list[Cell]:
    """The cells of these suites for a model, in the order of measuring.

    Args:
        suites: wanted.
        size: which sizes.
        task: ``embed`` or ``score``; a model that scores is measured in its process alone, where
            all systems get the same token ids: their servers put pairs together differently.
        num_clients: client processes of the throughput suite.
    """
    sizes = _SIZES[size]
    made: dict[Suite, list[Cell]] = {
        "latency": [Cell("latency", "offline", 1, n) for n in sizes.latency_tokens],
        "scoring": [Cell("scoring", "offline", n, t) for n, t in sizes.scoring],
        "concurrency": [
            Cell("concurrency", "http", 1, sizes.concurrency_tokens, c) for c in sizes.concurrency
        ],
        "throughput": [
            cell
            for n, t in sizes.throughput
            for cell in (
                Cell("throughput", "clients", n, t, num_clients),
                Cell("throughput", "offline", n, t),
            )
        ],
    }
    chosen = [cell for suite in SUITES if suite in suites for cell in made[suite]]
    return [c for c in chosen if task == "embed" or c.way == "offline"]


def check_tokens(size: Size) -> tuple[int, ...]:
    """Lengths of the texts on which systems must agree before anything is timed."""
    return _SIZES[size].check_tokens
