"""Which order and token budget suit a card: `python -m bench.scheduler`, no card needed.

Traffic goes through Tulip's own scheduler (the state machine, not a model of it) on a simulated
clock. A step takes a + b * tokens + c * sum(length^2) seconds; the three are fitted to steps that
were measured on a card (`bench/results/engine-h200.jsonl`). Two steps are handed out at a time and
the second starts when the first ends, as in `hotbed.tulip.loop`. Orders other than Tulip's are in
`bench.scheduler_orders`, traffic in `bench.scheduler_traffic`.

Not in the simulation: Python's time, the network, and what shares of it differ between the orders.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.scheduler_orders import ORDERS
from bench.scheduler_traffic import SCENARIOS, Arrival, read_trace
from hotbed.bench import rows
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import StepResult
from hotbed.tulip.scheduler import Scheduler
from hotbed.tulip.work import Answer, Item, Step
from hotbed.wire.limits import Limits

MODEL = "pplx-embed-0.6b"
BUDGETS = (2048, 4096, 8192, 16384)
DEFAULT_BUDGET = 8192
MIN_AHEAD_TOKENS = 512  # of TulipSettings
_SPEC = OutputSpec(1, normalize=False)
_IDS = np.zeros(1 << 18, dtype=np.int32)


@dataclass(frozen=True)
class Cost:
    """Seconds of a step: ``a + b * tokens + c * sum(length^2)``."""

    a: float
    b: float
    c: float

    def seconds(self, lengths: np.ndarray) -> float:
        lengths = lengths.astype(np.float64)
        return float(self.a + self.b * lengths.sum() + self.c * (lengths**2).sum())


def fit(measured: Sequence[dict[str, Any]]) -> tuple[Cost, float]:
    """Least squares of the relative error over engine rows; also its largest value.

    A row is `n` sequences of `tokens` tokens, run in steps of at most the tokens that its settings
    name; `device_ms` is of all of them, one after the other.

    Raises:
        ValueError: too few rows, or a coefficient that is not positive: the form does not fit.
    """
    terms, seconds = [], []
    for r in measured:
        budget = int(r["settings"].split("step ")[1].split(" ")[0])
        a_step = max(1, budget // r["tokens"])
        num_steps = -(-r["n"] // a_step)
        num_tokens = r["n"] * r["tokens"]
        terms.append((num_steps, num_tokens, num_tokens * r["tokens"]))
        seconds.append(r["device_ms"] / 1e3)
    if len(seconds) < 6:
        raise ValueError(f"{len(seconds)} measured rows are too few to fit three coefficients")
    scaled = np.array(terms, dtype=np.float64) / np.array(seconds)[:, None]
    a, b, c = np.linalg.lstsq(scaled, np.ones(len(seconds)), rcond=None)[0]
    if min(a, b, c) <= 0:
        raise ValueError(f"the cost model does not fit: a={a}, b={b}, c={c}")
    return Cost(float(a), float(b), float(c)), float(np.abs(scaled @ (a, b, c) - 1).max())


def engine_rows(path: Path, commit: str | None) -> list[dict[str, Any]]:
    """The model's steps of one commit: the newest one with enough of them unless it is named."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        r = json.loads(line)
        if r["model"] == MODEL and r["suite"] == "engine" and "device_ms" in r:
            found.setdefault(r["commit"], []).append(r)
    enough = [name for name, of in found.items() if len(of) >= 6]
    if not enough or (commit is not None and commit not in found):
        raise ValueError(f"{path} has no rows of {MODEL}" + (f" at {commit}" if commit else ""))
    return found[commit or enough[-1]]


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        latencies: of each kind of item, seconds from arrival to answer.
        busy_s: seconds that the device computed.
        elapsed_s: from the first arrival to the last answer.
        num_tokens: of all items.
    """

    latencies: dict[str, np.ndarray]
    busy_s: float
    elapsed_s: float
    num_tokens: int


def replay(
    arrivals: Sequence[Arrival], order: str, cost: Cost, budget: int, *, max_in_flight: int = 2
) -> Outcome:
    """Send the arrivals through a scheduler with this order and budget.

    Raises:
        RuntimeError: an item was not answered with its rows: a bug.
    """
    limits = Limits(budget, 512, 1 << 40, 1 << 20, 1 << 40, 1 << 20)
    scheduler = Scheduler(limits, waiting=ORDERS[order](budget))
    in_flight: deque[Step] = deque()
    waiting = deque(sorted(arrivals, key=lambda a: a.at_s))
    ends: list[float] = []
    kinds: dict[Item, Arrival] = {}
    latencies: dict[str, list[float]] = {a.kind: [] for a in arrivals}
    now = device_free = busy_s = 0.0
    min_ahead = min(MIN_AHEAD_TOKENS, budget)
    while waiting or in_flight:
        if in_flight and (not waiting or ends[0] <= waiting[0].at_s):
            now = heapq.heappop(ends)
            step = in_flight.popleft()
            scheduler.complete(step, _rows(step), now)
        else:
            now = waiting[0].at_s
            while waiting and waiting[0].at_s <= now:
                arrival = waiting.popleft()
                item = _item(arrival)
                kinds[item] = arrival
                scheduler.submit(item, now)
        while len(in_flight) < max_in_flight:
            least = min_ahead if in_flight else 1
            composed = scheduler.next_step(now, min_tokens=least)
            if composed is None:
                break
            seconds = cost.seconds(_lengths(composed))
            busy_s += seconds
            device_free = max(device_free, now) + seconds
            in_flight.append(composed)
            heapq.heappush(ends, device_free)
        for answer in scheduler.take_answers():
            arrival = kinds.pop(answer.item)
            _check(answer)
            latencies[arrival.kind].append(now - arrival.at_s)
    if kinds:
        raise RuntimeError(f"{len(kinds)} items were never answered: this is a bug")
    return Outcome(
        {kind: np.array(values) for kind, values in latencies.items()},
        busy_s,
        now - min(a.at_s for a in arrivals),
        sum(sum(a.lengths) for a in arrivals),
    )


def _item(arrival: Arrival) -> Item:
    lengths = np.array(arrival.lengths, dtype=np.int32)
    batch = RaggedBatch.from_lengths(_IDS[: int(lengths.sum())], lengths)
    return Item(batch, _SPEC, on_answer=lambda _: None, client=arrival.client)


def _lengths(step: Step) -> np.ndarray:
    return np.concatenate([p.item.batch.lengths[p.start : p.stop] for p in step.parts()])


def _rows(step: Step) -> StepResult:
    n = step.num_sequences
    return StepResult([np.zeros((n, 1), dtype=np.float32)], np.ones(n, dtype=np.bool_))


def _check(answer: Answer) -> None:
    if not isinstance(answer.result, np.ndarray):
        raise RuntimeError(f"an item was answered with {answer.result}: this is a bug")


def measure(
    scenario: str, arrivals: Sequence[Arrival], order: str, cost: Cost, budget: int
) -> list[dict[str, Any]]:
    """One result row a kind of item."""
    outcome = replay(arrivals, order, cost, budget)
    measured = []
    for kind, latencies in outcome.latencies.items():
        median = float(np.median(latencies))
        measured.append(
            rows.row(
                "scheduler", "tulip", MODEL, scenario=scenario, kind=kind, order=order,
                step_tokens=budget, n=len(latencies), **rows.percentiles(latencies),
                max_over_median=round(float(latencies.max()) / median, 1),
                tokens_per_s=round(outcome.num_tokens / outcome.elapsed_s),
                busy_us_per_token=round(outcome.busy_s / outcome.num_tokens * 1e6, 3),
                device="simulated H200",
            )
        )  # fmt: skip
    return measured


COLUMNS = [
    "scenario", "kind", "order", "step_tokens", "n", "p50_ms", "p99_ms", "max_over_median",
    "tokens_per_s", "busy_us_per_token",
]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="of simulated traffic")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine-rows", type=Path, default=rows.RESULTS / "engine-h200.jsonl")
    parser.add_argument("--rows-of", metavar="COMMIT", help="fit to the rows of this commit")
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=list(ORDERS))
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--trace", type=Path, help="replay this file too: see scheduler_traffic")
    parser.add_argument("--out", type=Path, help="results file to append to")
    parser.add_argument("--plot", type=Path, help="write the plot (needs matplotlib)")
    options = parser.parse_args(argv)
    cost, worst = fit(engine_rows(options.engine_rows, options.rows_of))
    print(
        f"a step takes {cost.a * 1e3:.3f} ms + {cost.b * 1e6:.3f} us a token + "
        f"{cost.c * 1e12:.1f} ps a squared length; worst row off by {worst:.0%}",
        flush=True,
    )
    traffic = {
        name: SCENARIOS[name](np.random.default_rng(options.seed), options.seconds, cost)
        for name in options.scenarios
    }
    if options.trace:
        traffic["trace"] = read_trace(options.trace)
    measured: list[dict[str, Any]] = []
    for name, arrivals in traffic.items():
        pairs = [(order, DEFAULT_BUDGET) for order in options.orders]
        pairs += [("turns", budget) for budget in BUDGETS if budget != DEFAULT_BUDGET]
        pairs += [("fcfs", budget) for budget in BUDGETS if budget != DEFAULT_BUDGET]
        for order, budget in pairs:
            measured += measure(name, arrivals, order, cost, budget)
        rows.show(name, [r for r in measured if r["scenario"] == name], COLUMNS)
    if options.out:
        rows.append(options.out, measured)
    if options.plot:
        from bench.scheduler_plot import plot

        plot(measured, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
