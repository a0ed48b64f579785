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
# All sizes take turns and the fastest turn of each counts, as other work on the machine comes and
# goes; a turn takes about so long.
_ROUNDS = 3
_TURN_S = 0.15
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
        sizes: token counts, rising.
        on_size: hears of each turn.
    """
    best: dict[int, StepTime] = {}
    for round_number in range(_ROUNDS):
        for num_tokens in sizes if round_number == 0 else list(best):
            try:
                measured = _measure(engine, _batch(engine, num_tokens))
            except torch.OutOfMemoryError:
                if not best:
                    raise
                break
            best[num_tokens] = _faster(best.get(num_tokens, measured), measured)
            on_size(measured)
            if measured.best_ms > _MAX_STEP_S * 1e3:
                break
    times = list(best.values())
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
    if not isinstance(runner, CudaRunner):
        return StepTime(batch.num_tokens, _step_ms(engine, batch))
    runner.capture_mode = CaptureMode.OFF
    eager_ms = _step_ms(engine, batch)
    runner.capture_mode = CaptureMode.LAZY
    return StepTime(batch.num_tokens, eager_ms, _step_ms(engine, batch))


def _faster(a: StepTime, b: StepTime) -> StepTime:
    replayed = [t.replayed_ms for t in (a, b) if t.replayed_ms is not None]
    return StepTime(a.num_tokens, min(a.eager_ms, b.eager_ms), min(replayed, default=None))


def _step_ms(engine: RoseEngine, batch: RaggedBatch) -> float:
    """Milliseconds a step, two in flight."""
    for _ in range(2):  # build kernels, capture; then a step that does not
        engine.step(batch).wait()
    start = time.perf_counter()
    engine.step(batch).wait()
    once = time.perf_counter() - start
    num_steps = max(3, min(_MAX_STEPS, int(_TURN_S / once)))
    if once > _MAX_STEP_S:
        return round(once * 1e3, 4)
    flying = deque(engine.step(batch) for _ in range(_STEPS_IN_FLIGHT))
    start = time.perf_counter()
    for _ in range(num_steps):
        flying.popleft().wait()
        flying.append(engine.step(batch))
    seconds = time.perf_counter() - start
    while flying:
        flying.popleft().wait()
    return round(seconds / num_steps * 1e3, 4)
