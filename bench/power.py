"""What the card's power limit leaves of its speed: `python -m bench.power`.

    python -m bench.power --kernel-dir kernels --out bench/results/power-h200.jsonl

A card that is fed without a pause soon draws what it may, and lowers its clock so as not to draw
more: from there on energy is what bounds it. Each line is replayed for some seconds: its time in
the first replays of a card that has rested, its median over the last half, and the clock and the
power read meanwhile (`nvidia-smi`, which only reads). Two bare products of cuBLAS are the ceilings;
models are those of `bench.shapes` with seeded random weights, which make the tensor cores' wires
change about as much as any numbers do.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.engine import BF16, build_model
from bench.fp8 import FP8
from bench.on_card import DEVICE, Call, graph_of, options_of
from hotbed.bench import rows
from hotbed.bench.shapes import SHAPES
from hotbed.rose.attention.select import AttentionSettings
from hotbed.rose.batch import LengthGroup, PackedBatch

PRODUCTS = ((8192, 8192, 8192), (8192, 4096, 1024))
REST_S = 3.0
_QUERY = "--query-gpu=clocks.sm,power.draw.instant"
_MS = 100


@dataclass
class Readings:
    """(seconds, MHz, W) of a card, as they come."""

    found: list[tuple[float, float, float]] = field(default_factory=list)

    def means(self, start: float, stop: float) -> tuple[float, float]:
        """MHz and W between two times."""
        inside = [(mhz, watt) for at, mhz, watt in self.found if start <= at <= stop]
        mhz, watt = (statistics.fmean(values) for values in zip(*inside, strict=True))
        return mhz, watt


@contextlib.contextmanager
def read_the_card() -> Iterator[Readings]:
    """Readings every tenth of a second."""
    command = ["nvidia-smi", f"-i={DEVICE.index}", _QUERY, "--format=csv,noheader,nounits"]
    readings = Readings()
    with subprocess.Popen([*command, f"-lms={_MS}"], stdout=subprocess.PIPE, text=True) as process:

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                mhz, watt = map(float, line.split(","))
                readings.found.append((time.monotonic(), mhz, watt))

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield readings
        finally:
            process.terminate()
            thread.join()


def sustained(replay: Call, seconds: float, readings: Readings) -> dict[str, float]:
    """ms of a replay, first and sustained, with the clock and the power of the latter."""
    time.sleep(REST_S)
    start, times = time.monotonic(), list[tuple[float, float]]()
    while (now := time.monotonic() - start) < seconds:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        replay()
        end.record()
        end.synchronize()
        times.append((now, begin.elapsed_time(end)))
    mhz, watt = readings.means(start + seconds / 2, start + seconds)
    return {
        "first_ms": round(statistics.median(ms for _, ms in times[1:4]), 4),
        "p50_ms": round(statistics.median(ms for at, ms in times if at > seconds / 2), 4),
        "clock_mhz": round(mhz),
        "power_w": round(watt),
    }


def products() -> Iterator[tuple[dict[str, Any], Call]]:
    """Bare products, each long enough to be timed."""
    for m, n, k in PRODUCTS:
        x, w = (torch.randn(size, k, device=DEVICE).bfloat16() for size in (m, n))
        calls = max(1, int(1e13 / (2 * m * n * k)))
        graph = graph_of(functools.partial(torch.mm, x, w.T), calls)
        yield {"model": f"cuBLAS {m} x {n} x {k}", "flops": 2.0 * m * n * k * calls}, graph.replay


def models(
    names: list[str], sizes: list[tuple[int, int]], kernel_dir: Path
) -> Iterator[tuple[dict[str, Any], Call]]:
    """Whole steps, as one graph each."""
    for name in names:
        shape = SHAPES[name]
        for compute in (BF16, FP8):
            model, _, _ = build_model(shape, AttentionSettings(kernel_dir=kernel_dir), compute)
            for n, length in sizes:
                batch = step_of(n, length, shape.config.vocab_size)
                graph = graph_of(functools.partial(model.forward, batch))
                flops = shape.cost().matmul_flops([length] * n)
                fields = {"model": name, "n": n, "tokens": length, "settings": compute.name}
                yield fields | {"flops": flops}, graph.replay


def step_of(count: int, length: int, vocabulary: int) -> PackedBatch:
    """`count` texts of `length` random ids."""
    total = count * length
    return PackedBatch(
        token_ids=torch.randint(vocabulary, (total,), dtype=torch.int32, device=DEVICE),
        positions=torch.arange(total, dtype=torch.int32, device=DEVICE) % length,
        num_tokens=total,
        cu_seqlens=torch.arange(count + 1, dtype=torch.int32, device=DEVICE) * length,
        max_seqlen=length,
        groups=(LengthGroup(0, count, length),),
        restore=np.arange(count),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["pplx-embed-0.6b", "bge-m3"])
    parser.add_argument("--seconds", type=float, default=3.0)
    options, where = options_of(parser)
    with read_the_card() as readings:
        steps = models(options.models, [(16, 512), (2, 4096)], options.kernel_dir)
        for fields, replay in itertools.chain(products(), steps):
            flops = fields.pop("flops")
            found = sustained(replay, options.seconds, readings)
            seconds, n = found["p50_ms"] / 1e3, fields.get("n")
            row = rows.row(
                "power",
                "hotbed",
                **fields,
                **found,
                tflops=round(flops / seconds / 1e12, 1),
                seq_per_s=n and round(n / seconds, 1),
                joules=n and round(found["power_w"] * seconds / n, 4),
                **where,
            )
            print({k: v for k, v in row.items() if k not in where}, flush=True)
            if options.out is not None:
                rows.append(options.out, [row])
    return 0


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
