"""ROSE on a GPU: correctness, then device time against the floor: `python -m bench.engine`.

For each model shape (seeded random weights): rows of the engine, eager and replayed, alone and in a
mixed batch, against plain fp32 torch (cosine >= 0.999, or the run ends); then for each size the
device time of a step (CUDA graph replays back to back, so that launches are not timed), the
latency of one step() until its rows are on the host, and the CPU time of step() itself.

The floor is the larger of weight bytes over the card's measured read bandwidth and FLOPs over its
measured matmul rate.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from bench.reference import reference_row
from hotbed.bench import rows
from hotbed.bench.shapes import SHAPES, Shape, random_weights
from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.attention.backend import AttentionBackend
from hotbed.rose.attention.select import AttentionSettings, select_backend
from hotbed.rose.compute import Compute, open_mode
from hotbed.rose.cuda import CudaRunner, CudaSettings
from hotbed.rose.layers.fused import with_mode
from hotbed.rose.registry import FAMILIES

SIZES = ((1, 32), (1, 128), (1, 512), (1, 4096), (5, 512), (25, 512), (50, 512), (100, 512))
MIN_COSINE = 0.999
DEVICE = torch.device("cuda", 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--models", nargs="*", default=list(SHAPES))
    parser.add_argument("--attention", default="auto")
    parser.add_argument("--kernel-dir", type=Path)
    parser.add_argument("--step-tokens", type=int, nargs="*", default=[8192])
    parser.add_argument("--sizes", type=_size, nargs="*", help="as 25x512; all if not given")
    parser.add_argument("--commit", help="for the rows, where the tree is no git checkout")
    arguments = parser.parse_args()
    bandwidth, matmul = ceilings()
    print(f"read {bandwidth / 1e12:.2f} TB/s, bf16 matmul {matmul / 1e12:.0f} TFLOP/s", flush=True)
    settings = AttentionSettings(name=arguments.attention, kernel_dir=arguments.kernel_dir)
    measured: list[dict[str, Any]] = []
    for name in arguments.models:
        shape = SHAPES[name]
        runner, backend, weights = build(shape, settings)
        cosine = check(shape, runner, weights)
        print(f"{name}: {backend}, cosine >= {cosine:.6f}", flush=True)
        sizes = arguments.sizes or (SIZES if name != "qwen3-embedding-4b" else SIZES[:6])
        for n, length in sizes:
            # From one text to all of them, each size once.
            steps = (max(length, min(n * length, tokens)) for tokens in arguments.step_tokens)
            for step_tokens in dict.fromkeys(steps):
                result = time_size(runner, n, length, step_tokens)
                floor = max(
                    shape.cost().weight_bytes() / bandwidth,
                    shape.cost().matmul_flops([length] * n) / matmul,
                )
                measured.append(
                    gpu_row(
                        name,
                        n=n,
                        tokens=length,
                        cosine_min=round(cosine, 6),
                        floor_ms=round(floor * 1e3, 3),
                        ratio_to_floor=round(result["device_ms"] / floor / 1e3, 2),
                        tflops=round(
                            shape.cost().matmul_flops([length] * n) / result["device_ms"] / 1e9, 1
                        ),
                        **result,
                        commit=arguments.commit or rows.commit(),
                        settings=f"bf16, attention {backend}, step {step_tokens} tokens, graphs",
                    )
                )
                print(measured[-1], flush=True)
        counters = runner.counters
        print(f"{name}: {counters}", flush=True)
        runner.close()
        del runner, weights
        torch.cuda.empty_cache()
    columns = ["model", "n", "tokens", "device_ms", "p50_ms", "step_cpu_us", "floor_ms"]
    rows.show("ROSE", measured, [*columns, "ratio_to_floor", "tflops", "seq_per_s", "cosine_min"])
    if arguments.out:
        rows.append(arguments.out, measured)
    return 0


def _size(text: str) -> tuple[int, int]:
    n, length = text.split("x")
    return int(n), int(length)


def ceilings() -> tuple[float, float]:
    """Measured read bandwidth (bytes/s) and bf16 matmul rate (FLOP/s)."""
    x = torch.randn(2**30, device=DEVICE, dtype=torch.bfloat16)
    seconds = event_time(lambda: x.view(torch.int16).amax(), 20)
    bandwidth = x.nbytes / seconds
    a, b = (torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    matmul = 2 * 8192**3 / event_time(lambda: a @ b, 20)
    return bandwidth, matmul


def event_time(work: Any, repeats: int) -> float:
    """Median seconds of `work` on the device."""
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return float(np.median(times))


BF16 = Compute(torch.bfloat16)


def build_model(
    shape: Shape, settings: AttentionSettings, compute: Compute
) -> tuple[Any, AttentionBackend, Any]:
    """The shape with random weights: (model, its attention, weights)."""
    family = FAMILIES[shape.family]
    (spec,) = family.attention_specs(shape.config)
    backend = select_backend(
        spec, DEVICE, settings=settings, dtype=compute.dtype, invariant=compute.invariant
    )
    with torch.inference_mode():
        weights = random_weights(shape, DEVICE)
        with with_mode(open_mode(compute, settings.kernel_dir, DEVICE)):
            return family.build(shape.config, weights, [backend]), backend, weights


def build(
    shape: Shape, settings: AttentionSettings, compute: Compute = BF16
) -> tuple[CudaRunner, str, Any]:
    model, backend, weights = build_model(shape, settings, compute)
    runner = CudaRunner(
        model,
        dataclasses.replace(shape.recipe, fixed=compute.invariant),
        device=DEVICE,
        settings=CudaSettings(),
        by_length=backend.grid_follows_max_seqlen,
        by_shape=backend.tells_shapes_apart,
    )
    return runner, backend.name, weights


def embed(runner: CudaRunner, sequences: list[np.ndarray]) -> np.ndarray:
    batch = RaggedBatch.from_sequences(sequences)
    segment = OutputSegment(0, len(sequences), OutputSpec())
    result = runner.submit(batch, (segment,)).result()
    assert result.finite.all(), "a row is not finite"
    return result.rows[0]


def check(shape: Shape, runner: CudaRunner, weights: Any, min_cosine: float = MIN_COSINE) -> float:
    """Smallest cosine to the reference, eager and replayed, alone and mixed; a bad one ends all."""
    random = np.random.default_rng(0)
    lengths = [1, 2, 3, 17, 63, 64, 65, 128, 511, 512, 513, 1000, 2048]
    sequences = [random.integers(0, shape.config.vocab_size, n).astype(np.int32) for n in lengths]
    with torch.inference_mode():
        expected = torch.stack(
            [reference_row(shape, weights, torch.from_numpy(s).to(DEVICE)) for s in sequences]
        ).cpu()
    smallest = 1.0
    for attempt in ("eager", "captured", "replayed"):
        got = {
            "mixed": embed(runner, sequences),
            "alone": np.concatenate([embed(runner, [s]) for s in sequences]),
            "reversed": embed(runner, sequences[::-1])[::-1].copy(),
        }
        for how, array in got.items():
            cosine = F.cosine_similarity(torch.from_numpy(array).double(), expected.double())
            if not cosine.min() >= min_cosine:
                worst = int(cosine.argmin())
                sys.exit(
                    f"{shape.name} {attempt} {how}: cosine {cosine.min():.5f} at length "
                    f"{lengths[worst]}; nothing was timed. All: {cosine.tolist()}"
                )
            smallest = min(smallest, float(cosine.min()))
        spread = np.abs(got["mixed"] - got["alone"]).max() / np.abs(got["alone"]).max()
        print(f"{shape.name} {attempt}: alone against mixed, relative {spread:.1e}", flush=True)
    # Steps of the shapes that have attention of their own.
    for name, more in {"uniform": [512] * 9, "short": [32] * 130 + [101]}.items():
        sequences = [random.integers(0, shape.config.vocab_size, n).astype(np.int32) for n in more]
        with torch.inference_mode():
            expected = torch.stack(
                [reference_row(shape, weights, torch.from_numpy(s).to(DEVICE)) for s in sequences]
            ).cpu()
        for attempt in ("eager", "captured", "replayed"):
            array = embed(runner, sequences)
            cosine = F.cosine_similarity(torch.from_numpy(array).double(), expected.double())
            if not cosine.min() >= min_cosine:
                sys.exit(
                    f"{shape.name} {attempt} {name}: cosine {cosine.min():.5f}; nothing was timed"
                )
            smallest = min(smallest, float(cosine.min()))
    return smallest


def time_size(runner: CudaRunner, n: int, length: int, step_tokens: int) -> dict[str, Any]:
    random = np.random.default_rng(1)
    per_step = max(1, step_tokens // length)
    batches = []
    for start in range(0, n, per_step):
        ids = [random.integers(0, 30_000, length) for _ in range(min(per_step, n - start))]
        batches.append(RaggedBatch.from_sequences(ids))
    segments = [(OutputSegment(0, b.num_sequences, OutputSpec()),) for b in batches]
    pairs = list(zip(batches, segments, strict=True))

    def enqueue() -> list[Any]:
        return [runner.submit(b, s) for b, s in pairs]

    for _ in range(3):
        [f.result() for f in enqueue()]
    big = n * length > 20_000
    latencies, cpu = [], []
    for _ in range(20 if big else 100):
        start_s = time.perf_counter()
        futures = enqueue()
        cpu.append((time.perf_counter() - start_s) / len(pairs))
        [f.result() for f in futures]
        latencies.append(time.perf_counter() - start_s)
    # Device time: many rounds behind each other, so that the host is far ahead.
    rounds = 5 if big else 40
    stream = runner._stream
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        begin.record(stream)
    flying = [f for _ in range(rounds) for f in enqueue()]
    end.record(stream)
    end.synchronize()
    [f.result() for f in flying]
    device_ms = begin.elapsed_time(end) / rounds
    return {
        "device_ms": round(device_ms, 4),
        **rows.percentiles(latencies),
        "step_cpu_us": round(float(np.median(cpu)) * 1e6, 1),
        "seq_per_s": round(n / device_ms * 1e3, 1),
        "tokens_per_s": round(n * length / device_ms * 1e3),
    }


@functools.cache
def _driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()


def gpu_row(model: str, **fields: Any) -> dict[str, Any]:
    return rows.row(
        "engine",
        "hotbed",
        model,
        **fields,
        peak_mem_mib=torch.cuda.max_memory_allocated() >> 20,
        driver=_driver(),
        device=torch.cuda.get_device_name(),
    )


if __name__ == "__main__":
    sys.exit(main())
