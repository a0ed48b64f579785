"""Attention backends on one card, right first, then how fast: `python -m bench.attention`.

    python -m bench.attention --kernel-dir kernels --out bench/results/attention.jsonl

Times are medians of CUDA graph replays, variants interleaved. The inputs lie in the L2 cache as far
as they fit, as they do in a model, where the QKV projection has just written them. FLOPs are 4 x
visible pairs x query heads x head dim. `fa4` is the tile that ROSE chooses; `fa4 64x64` and so on
are forced: the thresholds in `hotbed.rose.attention.fa4.TILES` come from these rows, and those of
`hotbed.rose.attention.by_shape` from the uniform steps (sdpa is cuDNN there) and the short ones.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections.abc import Iterator
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hotbed.bench import rows
from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.attention.fa4 import Fa4Backend, TileRule
from hotbed.rose.attention.fa4_kernels import mask_of, tiles_in
from hotbed.rose.attention.reference import worst_error
from hotbed.rose.attention.sdpa import SdpaBackend
from hotbed.rose.attention.varlen import VarlenBackend
from hotbed.rose.batch import LengthGroup, PackedBatch

HEADS = {"hd128 16/8": (16, 8, 128), "hd64 16/16": (16, 16, 64), "hd32 12/12": (12, 12, 32)}
MASKS: dict[str, dict[str, Any]] = {
    "full": {"causal": False},
    "causal": {"causal": True},
    "window": {"causal": False, "window": 64},
}
STEPS = {
    "1x32": [32],
    "1x128": [128],
    "1x512": [512],
    "2x512": [512] * 2,
    "4x512": [512] * 4,
    "8x512": [512] * 8,
    "1x4096": [4096],
    "16x512": [512] * 16,
    "50x512": [512] * 50,
    "9x512": [512] * 9,
    "16x256": [256] * 16,
    "32x256": [256] * 32,
    "64x128": [128] * 64,
    "8x1024": [1024] * 8,
    "4x2048": [2048] * 4,
    "64x32": [32] * 64,
    "128x32": [32] * 128,
    "128x64": [64] * 128,
    "256x32": [32] * 256,
    "mixed": sorted(np.random.default_rng(0).integers(1, 513, 64).tolist(), reverse=True),
}


def packed(lengths: list[int]) -> PackedBatch:
    """The batch as the engine pads it, groups included for SDPA."""
    num_tokens = sum(lengths)
    granule = 64 if num_tokens <= 1024 else 256
    total = -(-num_tokens // granule) * granule
    offsets = list(accumulate(lengths, initial=0))
    groups = [(offsets[lengths.index(n)], len(list(g)), n) for n, g in groupby(lengths)]
    return PackedBatch(
        token_ids=torch.zeros(total, dtype=torch.int32, device="cuda"),
        positions=torch.zeros(total, dtype=torch.int32, device="cuda"),
        num_tokens=num_tokens,
        cu_seqlens=torch.tensor([*offsets, total], dtype=torch.int32, device="cuda"),
        max_seqlen=max(granule, 1 << (max(lengths) - 1).bit_length()),
        groups=tuple(LengthGroup(*group) for group in groups),
        restore=np.zeros(0, dtype=np.int64),
    )


def variants(
    spec: AttentionSpec, kernel_dir: Path | None
) -> Iterator[tuple[str, AttentionBackend]]:
    """What can compute `spec` here; says what cannot."""
    device = torch.device("cuda")
    if spec.window is None:
        yield "sdpa", SdpaBackend()
    candidates: list[tuple[str, AttentionBackend]] = [("varlen", VarlenBackend())]
    candidates.append(("fa4", Fa4Backend(kernel_dir)))
    for tile in tiles_in(kernel_dir, spec) if kernel_dir is not None else ():
        rules = {mask_of(spec): (TileRule(tile, torch.inf),)}
        name = f"fa4 {tile[0]}x{tile[1]}" if tile[0] else "fa4 default"
        candidates.append((name, Fa4Backend(kernel_dir, tiles=rules)))
    for name, backend in candidates:
        if (reason := backend.supports(spec, device, torch.bfloat16)) is not None:
            print(f"  {name}: {reason}")
            continue
        backend.prepare(spec, device)
        yield name, backend


def captured(backend: AttentionBackend, qkv: tuple, plan: Any, calls: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            backend.run(*qkv, plan)
    return graph


def medians_us(graphs: dict[str, torch.cuda.CUDAGraph], calls: int, reps: int) -> dict[str, float]:
    """Median time of a call, all variants in turn."""
    events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {n: [] for n in graphs}
    for rep in range(reps + 3):
        for name, graph in graphs.items():
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            stop.record()
            if rep >= 3:
                events[name].append((start, stop))
    torch.cuda.synchronize()
    return {
        name: statistics.median(a.elapsed_time(b) for a, b in pairs) * 1e3 / calls
        for name, pairs in events.items()
    }


def visible_pairs(length: int, spec: AttentionSpec) -> float:
    if spec.window is not None and spec.window < length:
        return length * (2 * spec.window + 1) - spec.window * (spec.window + 1)
    return length * length / (2 if spec.causal else 1)


def measure(
    backends: dict[str, AttentionBackend], spec: AttentionSpec, lengths: list[int], reps: int
) -> Iterator[tuple[str, float | None, float]]:
    """(variant, us a call or None if it is wrong, worst error as `worst_error` counts it)."""
    batch = packed(lengths)
    parts = (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)
    heads = torch.randn(
        len(batch.token_ids), sum(parts), spec.head_dim, dtype=torch.bfloat16, device="cuda"
    )
    qkv = heads.split(parts, dim=1)
    offsets = list(accumulate(lengths, initial=0))
    calls = 100 if batch.num_tokens <= 2048 else 10
    graphs, errors = {}, {}
    for name, backend in backends.items():
        plan = backend.plan(batch, spec)
        errors[name] = worst_error(backend.run(*qkv, plan), qkv, offsets, spec)
        if errors[name] <= 1:
            graphs[name] = captured(backend, qkv, plan, calls)
        else:
            yield name, None, errors[name]
    for name, us in medians_us(graphs, calls, reps).items():
        yield name, us, errors[name]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel-dir", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--masks", nargs="+", choices=MASKS, default=["full", "causal"])
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--reps", type=int, default=20)
    parser.add_argument("--commit", help="for the rows, where the tree is no git checkout")
    options = parser.parse_args()
    torch.manual_seed(0)
    where = {"device": torch.cuda.get_device_name(), "commit": options.commit or rows.commit()}
    measured: list[dict[str, Any]] = []
    num_wrong = 0
    for heads, mask in itertools.product(options.heads, options.masks):
        num_heads, num_kv_heads, head_dim = HEADS[heads]
        spec = AttentionSpec(num_heads, num_kv_heads, head_dim, **MASKS[mask])
        print(f"{heads} {mask}", flush=True)
        backends = dict(variants(spec, options.kernel_dir))
        for step in options.steps:
            lengths = STEPS[step]
            flops = 4 * sum(visible_pairs(n, spec) for n in lengths) * num_heads * head_dim
            for name, us, error in measure(backends, spec, lengths, options.reps):
                if us is None:
                    num_wrong += 1
                    print(
                        f"  {step:7} {name:12} WRONG: error {error:.2f} of what rounding explains"
                    )
                    continue
                fields = {"n": len(lengths), "tokens": sum(lengths), "settings": f"{name}, {step}"}
                fields |= {"p50_ms": us / 1e3, "tflops": flops / us * 1e-6, "worst_error": error}
                print(f"  {step:7} {name:12} {us:9.2f} us {fields['tflops']:6.0f} TFLOP/s")
                measured.append(
                    rows.row("attention", "hotbed", f"{heads} {mask}", **fields, **where)
                )
    if options.out is not None:
        rows.append(options.out, measured)
    return 1 if num_wrong else 0


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
