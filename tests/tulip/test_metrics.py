"""Symptoms guarded: label sets that grow with the clients, numbers that do not move. Case 117."""

from __future__ import annotations

import numpy as np
import pytest
from prometheus_client import generate_latest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.tulip.metrics import Metrics, StepTotals
from hotbed.tulip.work import Answer, Item, Part, Step


def item() -> Item:
    return Item(RaggedBatch.from_sequences([[1, 2], [3]]), OutputSpec(4), on_answer=lambda _: None)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"hotbed_tulip_{name}", labels)


def test_every_outcome_has_its_series_from_the_start() -> None:
    metrics = Metrics()
    for outcome in ("ok", *(code.value for code in ErrorCode)):
        assert value(metrics, "items_total", outcome=outcome) == 0


def test_no_error_adds_a_series() -> None:
    metrics = Metrics()
    before = generate_latest(metrics.registry).count(b"\nhotbed_tulip_")
    for code in ErrorCode:
        for n in range(50):
            error = HotbedError(code, f"message {n}", param=f"input[{n}]")
            metrics.refused(error)
            metrics.answered(Answer(item(), error))
    assert generate_latest(metrics.registry).count(b"\nhotbed_tulip_") == before
    assert value(metrics, "items_total", outcome="internal") == 100


def test_answers_steps_and_failures_are_counted() -> None:
    metrics = Metrics()
    metrics.answered(Answer(item(), np.zeros((2, 4), "<f4"), queue_s=0.2))
    metrics.step_done(Step.of([Part.of(item(), 0, 2)]), 0.03)
    metrics.step_failed()
    assert value(metrics, "items_total", outcome="ok") == 1
    assert value(metrics, "queue_seconds_sum") == pytest.approx(0.2)
    assert value(metrics, "step_tokens_sum") == 3
    assert value(metrics, "step_sequences_sum") == 2
    assert value(metrics, "step_seconds_sum") == pytest.approx(0.03)
    assert value(metrics, "failed_steps_total") == 1
    assert metrics.totals == StepTotals(steps=1, sequences=2, tokens=3, seconds=0.03, failed=1)


def test_the_queue_is_read_when_the_page_is() -> None:
    metrics, tokens = Metrics(), [7]
    metrics.watch_queue(lambda: tokens[0])
    assert value(metrics, "queue_tokens") == 7
    tokens[0] = 9
    assert value(metrics, "queue_tokens") == 9


def test_two_servers_in_one_process_count_apart() -> None:
    first, second = Metrics(), Metrics()
    first.step_failed()
    assert value(second, "failed_steps_total") == 0


def test_the_engines_totals_are_read_when_the_page_is() -> None:
    metrics, totals = Metrics(), {"replayed": 0}
    metrics.watch_engine(lambda: totals)
    totals["replayed"] = 3
    assert value(metrics, "engine_total", what="replayed") == 3
