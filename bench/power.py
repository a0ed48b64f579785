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
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bench.whole_steps import DEVICE, graph_of, step_of
from hotbed.bench import rows
from hotbed.bench.shapes import SHAPES, random_weights
from hotbed.rose.attention.select import AttentionSettings, select_backend
from hotbed.rose.compute import Compute, open_mode
from hotbed.rose.kernels import files
from hotbed.rose.layers.fused import with_mode
from hotbed.rose.registry import FAMILIES

COMPUTES = (Compute(torch.bfloat16), Compute(torch.bfloat16, fp8=True))
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


def sustained(replay: Callable[[], object], seconds: float, readings: Readings) -> dict[str, float]:
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


def products() -> Iterator[tuple[dict[str, Any], Callable[[], object]]]:
    """Bare products, each long enough to be timed."""
    for m, n, k in PRODUCTS:
        x, w = (torch.randn(size, k, device=DEVICE).bfloat16() for size in (m, n))
        graph = torch.cuda.CUDAGraph()
        calls = max(1, int(1e13 / (2 * m * n * k)))
        torch.mm(x, w.T)
        with torch.cuda.graph(graph):
            for _ in range(calls):
                torch.mm(x, w.T)
        yield {"model": f"cuBLAS {m} x {n} x {k}", "flops": 2.0 * m * n * k * calls}, graph.replay


def models(
    names: list[str], sizes: list[tuple[int, int]], kernel_dir: Path
) -> Iterator[tuple[dict[str, Any], Callable[[], object]]]:
    """Whole steps, as one graph each."""
    for name in names:
        shape = SHAPES[name]
        family, config = FAMILIES[shape.family], shape.config
        settings = AttentionSettings(kernel_dir=kernel_dir)
        backend = select_backend(family.attention_specs(config)[0], DEVICE, settings=settings)
        for compute in COMPUTES:
            with with_mode(open_mode(compute, kernel_dir, DEVICE)):
                model = family.build(config, random_weights(shape, DEVICE), [backend])
            for n, length in sizes:
                graph = graph_of(model.forward, step_of(n, length, config.vocab_size))
                flops = shape.cost().matmul_flops([length] * n)
                fields = {"model": name, "n": n, "tokens": length, "settings": compute.name}
                yield fields | {"flops": flops}, graph.replay


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel-dir", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=["pplx-embed-0.6b", "bge-m3"])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="for the rows, where the tree is no git checkout")
    options = parser.parse_args()
    if (reason := files.missing(options.kernel_dir, DEVICE)) is not None:
        print(reason, file=sys.stderr)
        return 2
    torch.manual_seed(0)
    where = {"device": torch.cuda.get_device_name(), "commit": options.commit or rows.commit()}
    with read_the_card() as readings:
        for part in (
            products(),
            models(options.models, [(16, 512), (2, 4096)], options.kernel_dir),
        ):
            for fields, replay in part:
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
