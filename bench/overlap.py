"""Whether the host keeps ahead of the GPU: `python -m bench.overlap [--trace FILE]`.

After the engine's check of rows (`bench.engine`), for each size, with two steps in flight as Tulip
has them: the CPU time of submit(), its pieces one by one, and a trace of torch's profiler that says

    how many steps were enqueued while the one before still ran,
    how long the device was idle between one step's last copy and the next step's first,
    and between a step's input copy and its first kernel.

PASS where the median submit() takes at most 60 us, 95 % of the steps were enqueued ahead, and the
median idle time between steps is at most 5 us. The profiler itself slows the host down.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from bench import engine
from hotbed.bench import rows
from hotbed.bench.shapes import SHAPES
from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.attention.select import AttentionSettings
from hotbed.rose.cuda import CudaRunner
from hotbed.rose.readback import read_back

SIZES = ((1, 32), (1, 128), (1, 512), (8, 128), (16, 512))
MAX_SUBMIT_US = 60.0
MAX_GAP_US = 5.0
MIN_AHEAD = 0.95
WARM_STEPS = 20
TIMED_STEPS = 400
TRACED_STEPS = 40


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--models", nargs="*", default=["pplx-embed-0.6b"])
    parser.add_argument("--sizes", nargs="*", help="as 16x512")
    parser.add_argument("--attention", default="auto")
    parser.add_argument("--kernel-dir", type=Path)
    parser.add_argument("--trace", type=Path, help="folder for a Chrome trace of each size")
    parser.add_argument("--no-check", action="store_true", help="leave the check of rows out")
    parser.add_argument("--commit", help="for the rows, where the tree is no git checkout")
    arguments = parser.parse_args()
    sizes = [tuple(map(int, s.split("x"))) for s in arguments.sizes or ()] or SIZES
    settings = AttentionSettings(name=arguments.attention, kernel_dir=arguments.kernel_dir)
    measured: list[dict[str, Any]] = []
    passes = True
    for name in arguments.models:
        runner, backend, weights = engine.build(SHAPES[name], settings)
        cosine = None if arguments.no_check else engine.check(SHAPES[name], runner, weights)
        for n, length in sizes:
            result, verdict = measure(runner, n, length, arguments.trace)
            passes &= verdict.startswith("PASS")
            print(f"{name} {n} x {length}: {verdict}\n  {result}", flush=True)
            checked = {} if cosine is None else {"cosine_min": round(cosine, 6)}
            row = engine.gpu_row(
                name,
                n=n,
                tokens=length,
                **result,
                **checked,
                commit=arguments.commit or rows.commit(),
                settings=f"bf16, attention {backend}, two steps in flight, graphs",
            )
            measured.append({**row, "suite": "overlap"})
        runner.close()
        del runner, weights
        torch.cuda.empty_cache()
    if arguments.out:
        rows.append(arguments.out, measured)
    print("PASS" if passes else "FAIL")
    return 0 if passes else 1


def measure(
    runner: CudaRunner, n: int, length: int, trace: Path | None
) -> tuple[dict[str, Any], str]:
    """One size: what was measured, and the verdict with its reasons."""
    ids = np.random.default_rng(1).integers(0, 30_000, (n, length)).astype(np.int32)
    batch = RaggedBatch.from_sequences(list(ids))
    segments = (OutputSegment(0, n, OutputSpec()),)

    def in_flight(num_steps: int) -> tuple[list[float], float]:
        """(seconds of each submit, seconds a step) with two steps in flight."""
        flying = deque(runner.submit(batch, segments) for _ in range(2))
        submits = []
        start = time.perf_counter()
        for _ in range(num_steps):
            flying.popleft().result()
            before = time.perf_counter()
            flying.append(runner.submit(batch, segments))
            submits.append(time.perf_counter() - before)
        per_step = (time.perf_counter() - start) / num_steps
        for future in flying:
            future.result()
        return submits, per_step

    in_flight(WARM_STEPS)
    submits, per_step = in_flight(TIMED_STEPS)
    p50, p99 = np.percentile(np.array(submits) * 1e6, (50, 99))
    backlog = _backlog_seconds(lambda: runner.submit(batch, segments), runner._stream)
    result: dict[str, Any] = {
        "step_cpu_us": round(float(p50), 1),
        "step_cpu_p99_us": round(float(p99), 1),
        "pieces_us": _pieces(runner, batch, segments),
        "device_ms": round(backlog * 1e3, 4),
        "two_in_flight_ms": round(per_step * 1e3, 4),
    }
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        in_flight(TRACED_STEPS)
        torch.cuda.synchronize()
    if trace is not None:
        trace.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(trace / f"overlap-{n}x{length}.json"))
    result |= _read_trace(profiler)
    return result, _verdict(result)


def _backlog_seconds(submit: Callable[[], Any], stream: torch.cuda.Stream) -> float:
    """Seconds of device time a step, with the host far ahead."""
    flying = [submit() for _ in range(3)]
    [f.result() for f in flying]
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    num_steps = 30
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        begin.record(stream)
    flying = [submit() for _ in range(num_steps)]
    end.record(stream)
    end.synchronize()
    [f.result() for f in flying]
    return begin.elapsed_time(end) / 1e3 / num_steps


def _pieces(
    runner: CudaRunner, batch: RaggedBatch, segments: tuple[OutputSegment, ...]
) -> dict[str, float]:
    """Median us of each part of submit(), one step at a time, the device idle before it."""
    times: dict[str, list[float]] = {}
    config = runner._config_of(batch)
    for _ in range(100):
        clock = [time.perf_counter()]
        names = []

        def lap(name: str, clock: list[float] = clock, names: list[str] = names) -> None:
            clock.append(time.perf_counter())
            names.append(name)

        runner._config_of(batch)
        lap("configuration")
        with runner._on_stream:
            lap("stream")
            inputs = runner._inputs_of(config)
            sent = runner._input_staging.take(inputs.num_ints)
            lap("staging")
            inputs.fill(sent.array, batch)
            lap("fill")
            inputs.device_ints.copy_(sent.first(inputs.num_ints), non_blocking=True)
            lap("copy in")
            made = runner._graphs.run(config, lambda inputs=inputs: runner._work(inputs))
            lap("replay")
            back = read_back(
                made,
                segments,
                num_rows=batch.num_rows,
                recipe=runner._recipe,
                pool=runner._row_staging,
            )
            lap("copy out")
            event = back.staging.event = back.staging.event or torch.cuda.Event()
            event.record(runner._stream)
            lap("event")
        event.synchronize()
        runner._input_staging.give_back(sent)
        runner._row_staging.give_back(back.staging)
        for name, a, b in zip(names, clock, clock[1:], strict=False):
            times.setdefault(name, []).append(b - a)
    return {name: round(float(np.median(t)) * 1e6, 1) for name, t in times.items()}


def _read_trace(profiler: Any) -> dict[str, Any]:
    """Idle times of the device and how far the host was ahead, from the profiler's events."""
    device, host = [], []
    for event in profiler.profiler.kineto_results.events():
        span = (event.start_ns(), event.start_ns() + event.duration_ns(), event.name())
        if event.device_type() == torch.autograd.DeviceType.CUDA:
            device.append(span)
        elif event.name() in ("cudaMemcpyAsync", "cuMemcpyAsync"):
            host.append(span)
    device.sort()
    host.sort()
    steps = _steps(device)
    if len(steps) < 3:
        return {"traced_steps": len(steps)}
    between = [b[0] - a[1] for a, b in itertools.pairwise(steps)]
    result: dict[str, Any] = {
        "traced_steps": len(steps),
        "gap_p50_us": round(float(np.percentile(between, 50)) / 1e3, 2),
        "gap_p99_us": round(float(np.percentile(between, 99)) / 1e3, 2),
        "first_kernel_us": round(float(np.median([s[2] for s in steps])) / 1e3, 2),
        "busy_share": round(float(np.median([s[3] / (s[1] - s[0]) for s in steps])), 3),
    }
    if len(host) == 2 * len(steps):  # a copy in and a copy out each: in the order of the steps
        enqueued = [span[0] for span in host[::2]]
        ahead = [e < s[1] for e, s in zip(enqueued[1:], steps, strict=False)]
        result["enqueued_ahead"] = round(float(np.mean(ahead)), 3)
    return result


def _steps(device: list[tuple[int, int, str]]) -> list[tuple[int, int, int, int]]:
    """(start, end, from the input copy to the first kernel, time at work) of each step, in ns."""
    steps = []
    current: list[tuple[int, int, str]] = []
    for span in device:
        name = span[2].lower()
        if "htod" in name:
            current = [span]
        elif current:
            current.append(span)
            if "dtoh" in name:
                busy = _busy(current)
                steps.append((current[0][0], span[1], current[1][0] - current[0][1], busy))
                current = []
    return steps


def _busy(spans: list[tuple[int, int, str]]) -> int:
    """Time in which at least one of the spans runs; they are sorted, and kernels may overlap."""
    busy, until = 0, 0
    for start, end, _ in spans:
        busy += max(0, end - max(start, until))
        until = max(until, end)
    return busy


def _verdict(result: dict[str, Any]) -> str:
    reasons = []
    if not result["step_cpu_us"] <= MAX_SUBMIT_US:
        reasons.append(f"submit() takes {result['step_cpu_us']} us, aim {MAX_SUBMIT_US:.0f}")
    if "gap_p50_us" not in result:
        reasons.append("the profiler saw no steps on the device")
    elif not result["gap_p50_us"] <= MAX_GAP_US:
        reasons.append(f"the device is idle for {result['gap_p50_us']} us between steps")
    if not result.get("enqueued_ahead", 0.0) >= MIN_AHEAD:
        reasons.append(f"{result.get('enqueued_ahead')} of the steps were enqueued ahead")
    return f"FAIL: {'; '.join(reasons)}" if reasons else "PASS"


if __name__ == "__main__":
    sys.exit(main())
