"""The simulation: its clock, its fit, every order answers all, and what the default rests on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.scheduler import Cost, engine_rows, fit, main, measure, replay
from bench.scheduler_orders import ORDERS
from bench.scheduler_traffic import SCENARIOS, Arrival, read_trace
from hotbed.bench import rows

COST = Cost(a=1e-3, b=1e-6, c=0.0)


def arrival(at_s: float, *lengths: int, kind: str = "x", client: str = "a") -> Arrival:
    return Arrival(at_s, client, kind, lengths)


def test_a_lone_item_takes_just_its_step() -> None:
    outcome = replay([arrival(5.0, 1000)], "fcfs", COST, 8192)
    assert outcome.latencies["x"] == pytest.approx([2e-3])
    assert outcome.busy_s == pytest.approx(2e-3)


def test_the_second_step_in_flight_starts_when_the_first_ends() -> None:
    arrivals = [arrival(0.0, 1000), arrival(0.0005, 1000), arrival(0.0006, 1000)]
    outcome = replay(arrivals, "fcfs", COST, 1000)
    assert np.sort(outcome.latencies["x"]) == pytest.approx([2e-3, 3.5e-3, 5.4e-3])


def test_few_tokens_gather_behind_a_running_step() -> None:
    arrivals = [arrival(0.0, 1000), arrival(0.0001, 100), arrival(0.0019, 100)]
    outcome = replay(arrivals, "turns", COST, 8192)
    # Both wait for the first step's end at 2 ms and share a step of 1.2 ms.
    assert np.sort(outcome.latencies["x"]) == pytest.approx([1.3e-3, 2e-3, 3.1e-3])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_order_answers_everything(order: str, scenario: str) -> None:
    arrivals = SCENARIOS[scenario](np.random.default_rng(1), 0.3, COST)
    outcome = replay(arrivals, order, COST, 4096)
    assert sum(map(len, outcome.latencies.values())) == len(arrivals)
    assert min(float(v.min()) for v in outcome.latencies.values() if len(v)) > 0


def test_the_fit_finds_the_terms_that_made_the_rows() -> None:
    true = Cost(a=1e-3, b=2e-6, c=3e-10)
    made = []
    for n, tokens, budget in [(1, 32, 32), (1, 512, 512), (1, 4096, 4096)] + [
        (n, 512, budget) for n in (5, 25, 100) for budget in (4096, 8192)
    ]:
        left, seconds = n, 0.0
        while left:
            taken = min(left, max(1, budget // tokens))
            seconds += true.seconds(np.full(taken, tokens))
            left -= taken
        made.append({"n": n, "tokens": tokens, "device_ms": seconds * 1e3}
                    | {"settings": f"bf16, step {budget} tokens, graphs"})  # fmt: skip
    found, worst = fit(made)
    assert (found.a, found.b, found.c) == pytest.approx((true.a, true.b, true.c))
    assert worst < 1e-9


def test_too_few_rows_are_not_fitted() -> None:
    one = {"n": 1, "tokens": 32, "device_ms": 1.0, "settings": "step 32 tokens"}
    with pytest.raises(ValueError, match="too few"):
        fit([one] * 5)


def test_the_cards_rows_are_fitted_within_a_fifth() -> None:
    cost, worst = fit(engine_rows(rows.RESULTS / "engine-h200.jsonl", "a7c4d38"))
    assert worst < 0.2
    assert 1e-6 < cost.b < 3e-6


def one_number(scenario: str, kind: str, order: str, what: str) -> Any:
    cost = Cost(a=0.95e-3, b=1.6e-6, c=340e-12)
    arrivals = SCENARIOS[scenario](np.random.default_rng(0), 1.0, cost)
    (found,) = [r for r in measure(scenario, arrivals, order, cost, 8192) if r["kind"] == kind]
    return found[what]


@pytest.mark.parametrize("scenario", ["mixed", "one_client"])
def test_turns_keep_short_requests_short_beside_huge_ones(scenario: str) -> None:
    assert one_number(scenario, "query", "turns", "p99_ms") < (
        one_number(scenario, "query", "fcfs", "p99_ms") / 3
    )


def test_turns_cost_no_throughput() -> None:
    assert one_number("mixed", "query", "turns", "busy_us_per_token") < 1.02 * (
        one_number("mixed", "query", "fcfs", "busy_us_per_token")
    )


def test_a_trace_is_read_and_a_bad_line_named(tmp_path: Path) -> None:
    good = {"at_s": 0.5, "client": "a", "kind": "query", "lengths": [3, 4]}
    path = tmp_path / "trace"
    path.write_text(json.dumps(good) + "\n")
    assert read_trace(path) == [arrival(0.5, 3, 4, kind="query")]
    for bad in ({**good, "lengths": [0]}, {"at_s": 1}, "no object"):
        path.write_text(json.dumps(good) + "\n" + json.dumps(bad) + "\n")
        with pytest.raises(ValueError, match="line 2"):
            read_trace(path)


def test_the_command_writes_rows_and_a_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out, plot = tmp_path / "out.jsonl", tmp_path / "plot.svg"
    assert main(["--seconds", "0.2", "--scenarios", "mixed", f"--out={out}", f"--plot={plot}",
                 "--rows-of", "a7c4d38"]) == 0  # fmt: skip
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert {r["order"] for r in written} == set(ORDERS)
    assert {"p50_ms", "p99_ms", "max_over_median", "tokens_per_s"} <= set(written[0])
    assert "<svg" in plot.read_text()
