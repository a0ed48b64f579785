"""GEMMs with a fused epilogue on one card, right first, then how fast: `python -m bench.gemm`.

    python -m bench.gemm --kernel-dir kernels --out bench/results/gemm.jsonl

Each layer of `bench.shapes` that a fused GEMM can take, at each number of rows: cuBLAS with the
kernel behind it, as ROSE runs without the folder, against every tile in it. ROSE takes one tile,
from `hotbed.rose.kernels.gemm.MIN_ROWS` on: both come from these rows; `*` marks where. Then the
kernels over rows that stay on their own, against the bytes they move.

Times are medians of CUDA graph replays, variants interleaved; weights lie in the L2 cache as far as
they fit, for all variants alike. A wrong kernel is named and not timed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.attention import medians_us
from bench.on_card import DEVICE, Call, graph_of, options_of
from hotbed.bench import rows
from hotbed.bench.shapes import SHAPES
from hotbed.rose.kernels import gelu, gemm, launchers, qk_norm_rope, rms_norm, swiglu
from hotbed.rose.kernels.gemm import FusedGemm
from hotbed.rose.kernels.gemm_files import TILE, Epilogue, kernels_in

ROWS = (128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
CHECKED_ROWS = (1, 127, 1000, 4097)
Row = dict[str, Any]


def layers() -> dict[tuple[Epilogue, int, int], str]:
    """(epilogue, columns, depth) to the layer's name, each once."""
    found: dict[tuple[Epilogue, int, int], str] = {}
    for shape in SHAPES.values():
        c, name = shape.config, shape.name
        d, f = c.hidden_size, c.intermediate_size
        if shape.family == "decoder":
            found.setdefault(("swiglu", 2 * f, d), f"{name} gate/up")
        else:
            found.setdefault(("gelu_bias", f, d), f"{name} up")
            found.setdefault(("gelu_tanh_bias", f, d), f"{name} up, tanh")
    return found


def inputs(epilogue: Epilogue, m: int, n: int, k: int) -> tuple[Tensor, Tensor, Tensor | None]:
    x = torch.randn(m, k, device=DEVICE, dtype=torch.bfloat16)
    weight = torch.randn(n, k, device=DEVICE, dtype=torch.bfloat16) / k**0.5
    bias = None if epilogue == "swiglu" else torch.randn(n, device=DEVICE, dtype=torch.bfloat16)
    return x, weight, bias


def unfused(epilogue: Epilogue, x: Tensor, weight: Tensor, bias: Tensor | None) -> object:
    """As `hotbed.rose.layers.linear` runs it without the folder."""
    if bias is None:
        return launchers.swiglu(x @ weight.T)
    if epilogue == "gelu_bias":
        return launchers.bias_gelu_(x @ weight.T, bias)
    return torch._addmm_activation(bias, x, weight.T, use_gelu=True)


def worst_error(fused: FusedGemm, epilogue: Epilogue, m: int, n: int, k: int) -> float:
    """`share_of_rounding` of a kernel."""
    x, weight, bias = inputs(epilogue, m, n, k)
    return share_of_rounding(fused(x, weight, bias), gemm.reference(epilogue, x, weight, bias))


def share_of_rounding(got: Tensor, expected: Tensor, more: float = 2e-3) -> float:
    """Largest error as a share of one rounding to BF16 and `more`; up to 1 is right.

    Infinite where a result is not a number, which `max` and comparisons would pass over.
    """
    error = (got.float() - expected).abs()
    return float((error / (2**-8 * expected.abs() + more)).nan_to_num(nan=torch.inf).max())


def time_us(variants: dict[str, Call], flops: float, reps: int) -> dict[str, float]:
    calls = max(1, min(50, int(5e11 / flops)))
    graphs = {name: graph_of(call, calls) for name, call in variants.items()}
    return medians_us(graphs, calls, reps)


def measure_gemms(kernel_dir: Path, row_counts: Sequence[int], reps: int) -> Iterator[Row]:
    """Rows; one with `worst_error` above 1 is of a wrong kernel."""
    for (epilogue, n, k), layer in layers().items():
        print(f"{layer}: {epilogue}, N {n}, K {k}", flush=True)
        right: dict[str, tuple[FusedGemm, float]] = {}
        for kernel in kernels_in(kernel_dir):
            if kernel.epilogue != epilogue or kernel.operands != "bf16":
                continue
            fused, name = gemm.load(kernel_dir, kernel, DEVICE, 0), kernel.tile.name
            error = max(worst_error(fused, epilogue, m, n, k) for m in CHECKED_ROWS)
            if error <= 1:
                right[name] = (fused, error)
                continue
            print(f"  {name} WRONG: error {error:.2f} of what rounding explains")
            yield {"model": layer, "settings": name, "worst_error": error}
        for m in row_counts:
            args = inputs(epilogue, m, n, k)
            variants: dict[str, Call] = {"cuBLAS": lambda a=args, e=epilogue: unfused(e, *a)}
            for name, (fused, _) in right.items():
                variants[name] = lambda f=fused, a=args: f(*a)
            flops = 2.0 * m * n * k
            times = time_us(variants, flops, reps)
            chosen = TILE.name if gemm.is_fast(m, gemm.MIN_ROWS[epilogue]) else "cuBLAS"
            marked = (f"{name}{'*' * (name == chosen)} {us:8.1f}" for name, us in times.items())
            print(f"  {m:6}  {'  '.join(marked)}", flush=True)
            for name, us in times.items():
                yield {
                    "model": layer,
                    "tokens": m,
                    "settings": f"{epilogue} {n}x{k}, {name}",
                    "p50_ms": us / 1e3,
                    "tflops": flops / us * 1e-6,
                    "worst_error": right[name][1] if name in right else 0.0,
                }


def measure_rows_kernels(reps: int) -> Iterator[Row]:
    """The kernels between the GEMMs, with the rate at which they move what they must."""

    def bf16(*shape: int) -> Tensor:
        return torch.randn(shape, device=DEVICE, dtype=torch.bfloat16)

    print("kernels over rows", flush=True)
    for m in (1024, 4096, 8192, 16_384):
        positions = torch.arange(m, dtype=torch.int32, device=DEVICE) % 512
        cos, sin = (torch.randn(512, 64, device=DEVICE) for _ in range(2))
        mlp, gate_up, qkv, x, w128 = (
            *(bf16(m, 4096), bf16(m, 6144), bf16(m, 32 * 128), bf16(m, 1024)),
            bf16(128),
        )
        bias, w1024 = bf16(4096), bf16(1024)
        heads = {"num_heads": 16, "num_kv_heads": 8}

        def rotate(
            qkv: Tensor = qkv,
            table: tuple[Tensor, ...] = (positions, cos, sin),
            w: Tensor = w128,
            heads: dict[str, int] = heads,
        ) -> object:
            return launchers.qk_norm_rope_(qkv, *table, **heads, q_weight=w, k_weight=w, eps=1e-6)

        calls: dict[str, tuple[Call, int]] = {
            "bias_gelu 4096": (
                lambda x=mlp, b=bias: launchers.bias_gelu_(x, b),
                gelu.bytes_moved(m, 4096),
            ),
            "swiglu 3072": (lambda x=gate_up: launchers.swiglu(x), swiglu.bytes_moved(m, 3072)),
            "qk_norm_rope 16/8": (rotate, qk_norm_rope.bytes_moved(m, 16, 8, 128)),
            "rms_norm 1024": (
                lambda x=x, w=w1024: launchers.rms_norm(x, w, eps=1e-6),
                rms_norm.bytes_moved(m, 1024),
            ),
        }
        times = time_us({name: call for name, (call, _) in calls.items()}, 1e10, reps)
        for name, us in times.items():
            rate = calls[name][1] / us * 1e-6
            print(f"  {m:6}  {name:18} {us:8.1f} us {rate:6.2f} TB/s", flush=True)
            yield {"model": name, "tokens": m, "settings": "Triton", "p50_ms": us / 1e3}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--reps", type=int, default=15)
    options, where = options_of(parser)
    measured = [
        rows.row("gemm", "hotbed", **fields, **where)
        for fields in itertools.chain(
            measure_gemms(options.kernel_dir, options.rows, options.reps),
            measure_rows_kernels(options.reps),
        )
    ]
    if options.out is not None:
        rows.append(options.out, measured)
    return 1 if any(row.get("worst_error", 0) > 1 for row in measured) else 0


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
