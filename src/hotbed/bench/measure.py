"""Times a cell: systems in turn, round by round, and what the times say."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hotbed.bench.cells import Cell
from hotbed.bench.clients import Sample
from hotbed.bench.cost import Ceilings, Cost
from hotbed.bench.expected import Expected
from hotbed.bench.inputs import Text
from hotbed.bench.members import Member
from hotbed.bench.process import NoAnswerError, SystemFailedError
from hotbed.bench.rows import percentiles


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a cell is measured.

    Attributes:
        seconds: for a system, all rounds together.
        rounds: turns, as long as the time is not over.
        requests: most of a system.
        warm_up_s: before the first round.
        pause_s: before each turn: on a CPU threads of the system before spin on for a while.
    """

    seconds: float
    rounds: int
    requests: int
    warm_up_s: float
    pause_s: float = 0.0


@dataclass(slots=True)
class Outcome:
    """Of one member in one cell: samples, or why there are none.

    Attributes:
        samples: a round each.
        error: what went wrong; None if all went well.
        is_out: the member cannot be asked again.
    """

    samples: list[Sample] = field(default_factory=list)
    error: str | None = None
    is_out: bool = False


def measure_cell(
    cell: Cell,
    requests: Sequence[Sequence[Text]],
    members: Mapping[str, Member],
    expected: Mapping[str, Expected],
    pace: Pace,
) -> dict[str, Outcome]:
    """Every member's outcome; `expected` has its rows. One that fails, or gives a wrong row, is not
    asked again in this cell.
    """
    outcomes = {name: Outcome() for name in members}

    def attempt(name: str, work: str) -> None:
        outcome, member = outcomes[name], members[name]
        if outcome.error is not None:
            return
        try:
            if work == "warm up":
                member.give(cell, requests, expected[name])
                member.warm_up(cell, pace.warm_up_s)
                return
            left = pace.requests - sum(len(s.seconds) for s in outcome.samples)
            spent = sum(s.wall_s for s in outcome.samples)
            # One turn of long requests may take all of the time.
            if left > 0 and spent < pace.seconds:
                most = min(left, max(1, pace.requests // pace.rounds))
                outcome.samples.append(member.run(cell, pace.seconds / pace.rounds, most))
        except SystemFailedError as error:
            outcome.error = str(error)
            outcome.is_out = isinstance(error, NoAnswerError)

    for name in members:
        attempt(name, "warm up")
    for _ in range(pace.rounds):
        for name in members:
            time.sleep(pace.pause_s)
            attempt(name, "measure")
    return outcomes


def figures(
    cell: Cell, samples: Sequence[Sample], cost: Cost, ceilings: Ceilings
) -> dict[str, Any]:
    """The row's numbers.

    The floor is that of one request, or of all requests that are under way as one batch; the ratio
    is the median latency over it. (The report's tables of throughput compare rates instead.)
    """
    seconds = [s for sample in samples for s in sample.seconds]
    wall = sum(sample.wall_s for sample in samples)
    sequences = len(seconds) * cell.n
    lengths = [cell.tokens] * cell.n
    floor_s = ceilings.floor_s(cost, lengths * cell.concurrency)
    times = percentiles(seconds)
    flops = cost.matmul_flops(lengths) * len(seconds)
    return {
        "requests": len(seconds),
        "rounds": len(samples),
        **times,
        "seq_per_s": round(sequences / wall, 2),
        "tokens_per_s": round(sequences * cell.tokens / wall),
        "tflops": round(flops / wall / 1e12, 3),
        "floor_ms": round(floor_s * 1e3, 4),
        "ratio_to_floor": round(times["p50_ms"] / (floor_s * 1e3), 2),
    }


def least_pass_s(cell: Cell, cost: Cost, ceilings: Ceilings) -> float:
    """Seconds that one request of each client takes even at the device's ceilings."""
    return ceilings.floor_s(cost, [cell.tokens] * cell.n * cell.concurrency)
