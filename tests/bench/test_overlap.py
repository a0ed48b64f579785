"""What is read out of a trace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from bench import overlap

CPU, CUDA = torch.autograd.DeviceType.CPU, torch.autograd.DeviceType.CUDA


def _profiler(*events: tuple[Any, int, int, str]) -> Any:
    """Events as (device type, start us, end us, name)."""
    made = [
        SimpleNamespace(
            start_ns=lambda start=start: start * 1000,
            duration_ns=lambda start=start, end=end: (end - start) * 1000,
            name=lambda name=name: name,
            device_type=lambda kind=kind: kind,
        )
        for kind, start, end, name in events
    ]
    results = SimpleNamespace(events=lambda: made)
    return SimpleNamespace(profiler=SimpleNamespace(kineto_results=results))


def _step(start: int, *, enqueued: int) -> list[tuple[Any, int, int, str]]:
    """20 us at work, of which two kernels overlap for 5, and 2 us idle after the copy in."""
    return [
        (CPU, enqueued, enqueued + 1, "cudaMemcpyAsync"),
        (CPU, enqueued + 2, enqueued + 3, "cudaMemcpyAsync"),
        (CUDA, start, start + 2, "Memcpy HtoD (Pinned -> Device)"),
        (CUDA, start + 4, start + 14, "kernel_a"),
        (CUDA, start + 9, start + 20, "kernel_b"),
        (CUDA, start + 20, start + 22, "Memcpy DtoH (Device -> Pinned)"),
    ]


def test_gaps_and_lead_are_read_from_a_trace() -> None:
    trace = _profiler(
        *_step(100, enqueued=50), *_step(125, enqueued=110), *_step(150, enqueued=130)
    )
    result = overlap._read_trace(trace)
    assert result["traced_steps"] == 3
    assert result["gap_p50_us"] == 3.0
    assert result["first_kernel_us"] == 2.0
    assert result["busy_share"] == round(20 / 22, 3)
    assert result["enqueued_ahead"] == 1.0
    assert overlap._verdict(result | {"step_cpu_us": 50.0}) == "PASS"
    assert "submit() takes 61.0" in overlap._verdict(result | {"step_cpu_us": 61.0})


def test_a_host_that_comes_late_fails() -> None:
    steps = [_step(100 * i, enqueued=100 * i - 9) for i in range(4)]
    result = overlap._read_trace(_profiler(*(event for step in steps for event in step)))
    assert result["gap_p50_us"] == 78.0
    assert result["enqueued_ahead"] == 0.0
    verdict = overlap._verdict(result | {"step_cpu_us": 10.0})
    assert verdict.startswith("FAIL: the device is idle for 78.0 us")
    assert "0.0 of the steps" in verdict


def test_a_trace_without_the_device_is_no_pass() -> None:
    result = overlap._read_trace(_profiler((CPU, 1, 2, "cudaMemcpyAsync")))
    assert "saw no steps" in overlap._verdict(result | {"step_cpu_us": 10.0})
