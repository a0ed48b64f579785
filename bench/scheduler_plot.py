"""The plot of `bench.scheduler`: p99 of the short requests, and what orders and budgets cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

SHOWN = (
    ("mixed", "query"),
    ("mixed", "huge"),
    ("one_client", "query"),
    ("flood", "query"),
    ("bursts", "query"),
    ("queries", "query"),
)
BUDGET_SCENARIO = ("mixed", "query")


def plot(measured: Sequence[dict[str, Any]], path: Path, *, budget: int = 8192) -> None:
    """Left: p99 of each order at one budget. Right: latency against throughput by budget."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "hotbed"  # the same numbers give the same file
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.5), width_ratios=(2, 1))
    orders = list(dict.fromkeys(r["order"] for r in measured if r["step_tokens"] == budget))
    shown = [pair for pair in SHOWN if any((r["scenario"], r["kind"]) == pair for r in measured)]
    width = 0.8 / len(orders)
    for number, order in enumerate(orders):
        p99 = {
            (r["scenario"], r["kind"]): r["p99_ms"]
            for r in measured
            if r["order"] == order and r["step_tokens"] == budget
        }
        xs = [x + (number - len(orders) / 2 + 0.5) * width for x in range(len(shown))]
        left.bar(xs, [p99[pair] for pair in shown], width, label=order)
    left.set_xticks(range(len(shown)), [f"{s}:\n{k}" for s, k in shown])
    left.set_yscale("log")
    left.set_ylabel("p99, ms")
    left.set_title(f"Orders, steps of {budget} tokens")
    left.legend(fontsize=8)
    for order in ("fcfs", "turns"):
        points = sorted(
            (r["step_tokens"], r["busy_us_per_token"], r["p99_ms"])
            for r in measured
            if r["order"] == order and (r["scenario"], r["kind"]) == BUDGET_SCENARIO
        )
        right.plot([1 / us for _, us, _ in points], [ms for _, _, ms in points], "o-", label=order)
        for tokens, us, ms in points:
            right.annotate(f" {tokens}", (1 / us, ms), fontsize=8)
    right.set_xlabel("million tokens a second while the device is busy")
    right.set_ylabel(f"p99 of {BUDGET_SCENARIO[1]}, ms")
    right.set_title(f"Step budgets, {BUDGET_SCENARIO[0]}")
    right.set_yscale("log")
    right.legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
