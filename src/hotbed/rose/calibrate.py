"""Measures how long steps of rising size take on an engine: where knee and crossover lie."""

from __future__ import annotations

import datetime
import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import torch

from hotbed.core.ragged import RaggedBatch
from hotbed.rose.calibration import Calibration, StepTime, crossover, knee
from hotbed.rose.cuda import CudaRunner
from hotbed.rose.device import device_name
from hotbed.rose.engine import RoseEngine
from hotbed.rose.graphs import CaptureMode

SIZES = (64, 128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384)
# Texts of a usual length; one long text to a step would measure attention's square.
_TEXT_TOKENS = 512
_STEPS_IN_FLIGHT = 2
# Larger sizes are not looked at once a step takes so long: no request wants to wait behind it.
_MAX_STEP_S = 1.0
# Each mode is measured in turn, so that a machine that slows down slows both.
_ROUNDS = 3
_ROUND_S = 0.15
_MAX_STEPS = 60


def calibrate(
    engine: RoseEngine,
    *,
    sizes: Sequence[int] = SIZES,
    on_size: Callable[[StepTime], None] = lambda _: None,
) -> Calibration:
    """Time steps of each size, eager and, on a GPU, replayed.

    Args:
        engine: loaded with graphs for all of `sizes`; used by nobody else meanwhile.
        sizes: token counts, rising; the first one is always measured.
        on_size: hears of each measurement.
    """
    times: list[StepTime] = []
    for num_tokens in sizes:
        try:
            measured = _measure(engine, _batch(engine, num_tokens))
        except torch.OutOfMemoryError:
            if not times:
                raise
            break
        times.append(measured)
        on_size(measured)
        if measured.best_ms > _MAX_STEP_S * 1e3:
            break
    return Calibration(
        step_tokens=knee(times),
        max_graph_tokens=crossover(times),
        times=tuple(times),
        device=device_name(torch.device(engine.info.device)),
        date=datetime.date.today().isoformat(),
    )


def _batch(engine: RoseEngine, num_tokens: int) -> RaggedBatch:
    length = min(_TEXT_TOKENS, engine.info.max_tokens)
    whole, rest = divmod(num_tokens, length)
    lengths = np.array([length] * whole + [rest] * (rest > 0), dtype=np.int32)
    ids = np.random.default_rng(0).integers(0, engine.info.vocab_size, num_tokens, dtype=np.int32)
    return RaggedBatch.from_lengths(ids, lengths)


def _measure(engine: RoseEngine, batch: RaggedBatch) -> StepTime:
    runner = engine.runner
    modes: list[CaptureMode | None] = [None]
    if isinstance(runner, CudaRunner):
        modes = [CaptureMode.OFF, CaptureMode.LAZY]
    best = [float("inf")] * len(modes)
    for _ in range(_ROUNDS):
        for index, mode in enumerate(modes):
            if isinstance(runner, CudaRunner) and mode is not None:
                runner.capture_mode = mode
            best[index] = min(best[index], _step_seconds(engine, batch))
    eager_ms, *replayed_ms = (round(seconds * 1e3, 4) for seconds in best)
    return StepTime(batch.num_tokens, eager_ms, replayed_ms[0] if replayed_ms else None)


def _step_seconds(engine: RoseEngine, batch: RaggedBatch) -> float:
    for _ in range(2):  # build kernels, capture; then a step that does not
        engine.step(batch).wait()
    start = time.perf_counter()
    engine.step(batch).wait()
    once = time.perf_counter() - start
    num_steps = max(3, min(_MAX_STEPS, int(_ROUND_S / once)))
    if once > _MAX_STEP_S:
        return once
    flying = deque(engine.step(batch) for _ in range(_STEPS_IN_FLIGHT))
    start = time.perf_counter()
    for _ in range(num_steps):
        flying.popleft().wait()
        flying.append(engine.step(batch))
    seconds = time.perf_counter() - start
    while flying:
        flying.popleft().wait()
    return seconds / num_steps
