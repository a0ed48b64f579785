"""FP8 on one card, right first, then how fast beside BF16: `python -m bench.fp8`.

    python -m bench.fp8 --kernel-dir kernels --out bench/results/fp8-h200.jsonl

Three parts, each refused if what it times is wrong (--parts picks some):

    gemms    each product of `bench.shapes`' layers: cuBLAS in BF16, `torch._scaled_mm` with row
             scales, summing in fp32 and fast, and every FP8 kernel in the folder;
    chains   what stands between two products: SwiGLU to FP8, norms, attention's result;
    models   whole models with seeded random weights, BF16 and FP8 built side by side and timed in
             turn, with the cosine of each to plain fp32.

Times of the first two are medians of CUDA graph replays, variants interleaved; weights lie in the
L2 cache as far as they fit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench import engine
from bench.gemm import CHECKED_ROWS, Row, share_of_rounding, time_us
from bench.on_card import DEVICE, Call, options_of
from hotbed.bench import rows
from hotbed.bench.shapes import SHAPES
from hotbed.rose.attention.select import AttentionSettings
from hotbed.rose.compute import Compute
from hotbed.rose.kernels import fp8, gemm, launchers, layer_norm, rms_norm
from hotbed.rose.kernels.fp8 import Fp8Rows
from hotbed.rose.kernels.gemm_files import FP8_OPERANDS, Epilogue, GemmKernel, kernels_in
from hotbed.rose.layers.fp8_linear import scaled_mm

ROWS = (128, 512, 2048, 4096, 8192, 16_384, 51_200)
SIZES = ((1, 32), (1, 128), (1, 512), (25, 512), (100, 512), (100, 4096))
MODELS = ("pplx-embed-0.6b", "bge-m3")
FP8 = Compute(torch.bfloat16, fp8=True)
# The tensor cores' own sums have about 14 bits: over 128 products, or over all of them when fast.
MAX_ERROR = {"fp8": 4.0, "fp8fast": 16.0}
# Of random weights and ids in FP8 to fp32; a wrong scale or row gives below 0.9.
MIN_FP8_COSINE = 0.95


def products() -> dict[str, tuple[Epilogue, int, int]]:
    """Name to (epilogue, columns, depth) of the layers of `MODELS`."""
    found: dict[str, tuple[Epilogue, int, int]] = {}
    for name in MODELS:
        c = SHAPES[name].config
        d, f, heads = c.hidden_size, c.intermediate_size, c.num_attention_heads * c.head_dim
        if SHAPES[name].family == "decoder":
            kv = c.num_key_value_heads * c.head_dim
            layers: dict[str, tuple[Epilogue, int, int]] = {
                "qkv": ("plain", heads + 2 * kv, d),
                "out": ("add", d, heads),
                "gate/up": ("swiglu", 2 * f, d),
                "down": ("add", d, f),
            }
        else:
            layers = {
                "qkv": ("bias", 3 * d, d),
                "out": ("plain", d, d),
                "up": ("gelu_bias", f, d),
                "down": ("plain", d, f),
            }
        found |= {f"{name} {layer}": what for layer, what in layers.items()}
    return found


def random(*shape: int) -> Tensor:
    return torch.randn(shape, device=DEVICE, dtype=torch.bfloat16)


class Operands:
    """Inputs of one product, in BF16 and FP8."""

    def __init__(self, epilogue: Epilogue, m: int, n: int, k: int) -> None:
        self.epilogue: Epilogue = epilogue
        self.x, self.weight = random(m, k), random(n, k) / k**0.5
        self.fp8_x, self.fp8_weight = fp8.quantize_rows(self.x), fp8.quantize_rows(self.weight)
        if epilogue == "swiglu":
            self.fp8_weight = fp8.gate_and_up(self.fp8_weight)
        has_bias = epilogue in ("bias", "gelu_bias", "gelu_tanh_bias")
        self.bias = random(n) if has_bias else None
        self.added = random(m, n) if epilogue == "add" else None

    def bf16(self) -> object:
        if self.added is not None:
            return self.added.addmm_(self.x, self.weight.T)
        return self._behind(torch.nn.functional.linear(self.x, self.weight, self._early_bias()))

    def scaled(self, *, fast: bool) -> object:
        y = torch._scaled_mm(
            self.fp8_x.values,
            self.fp8_weight.values.T,
            scale_a=self.fp8_x.scales[:, None],
            scale_b=self.fp8_weight.scales[None],
            bias=self._early_bias(),
            out_dtype=torch.bfloat16,
            use_fast_accum=fast,
        )
        return self.added.add_(y) if self.added is not None else self._behind(y)

    def _early_bias(self) -> Tensor | None:
        return None if self.epilogue == "gelu_bias" else self.bias

    def _behind(self, y: Tensor) -> object:
        if self.epilogue == "swiglu":
            return launchers.swiglu(y)
        return launchers.bias_gelu_(y, self.bias) if self.epilogue == "gelu_bias" else y


def product_error(run: Callable[[Operands], Tensor], what: tuple[Epilogue, int, int]) -> float:
    """Largest error as a share of one rounding to BF16 and 4e-3."""
    worst = 0.0
    for m in CHECKED_ROWS:
        inputs = Operands(what[0], m, *what[1:])
        expected = gemm.reference(
            what[0], inputs.fp8_x, inputs.fp8_weight, inputs.bias, inputs.added
        )
        worst = max(worst, share_of_rounding(run(inputs), expected, 4e-3))
    return worst


def measure_products(kernel_dir: Path, row_counts: list[int], reps: int) -> Iterator[Row]:
    for name, what in products().items():
        epilogue, n, k = what
        print(f"{name}: {epilogue}, N {n}, K {k}", flush=True)
        kernels: dict[str, gemm.FusedGemm] = {}
        for kernel in kernels_in(kernel_dir):
            if kernel.operands == "bf16" or kernel.epilogue != epilogue:
                continue
            label = f"{kernel.operands} {kernel.tile.name}"
            fused = gemm.load(kernel_dir, kernel, DEVICE, 0)
            error = product_error(
                lambda o, f=fused: f(o.fp8_x, o.fp8_weight, o.bias, o.added), what
            )
            print(f"  {label}: error {error:.2f} of one rounding and 4e-3", flush=True)
            if error > MAX_ERROR[kernel.operands]:
                print(f"  {label} WRONG: error {error:.2f} of what rounding explains", flush=True)
                yield {"model": name, "settings": label, "worst_error": error}
                continue
            chosen = kernel == GemmKernel.chosen(kernel.epilogue, FP8_OPERANDS)
            kernels[label + "*" * chosen] = fused
        for m in row_counts:
            o = Operands(epilogue, m, n, k)
            variants: dict[str, Call] = {"bf16 cuBLAS": o.bf16}
            variants["scaled_mm"] = lambda o=o: o.scaled(fast=False)
            variants["scaled_mm fast"] = lambda o=o: o.scaled(fast=True)
            for label, fused in kernels.items():
                variants[label] = lambda o=o, f=fused: f(o.fp8_x, o.fp8_weight, o.bias, o.added)
            flops = 2.0 * m * n * k
            for label, us in time_us(variants, flops, reps).items():
                rate = flops / us * 1e-6
                print(f"  {m:6} {label:22} {us:8.1f} us {rate:7.0f} TFLOP/s", flush=True)
                yield {
                    "model": name,
                    "tokens": m,
                    "settings": f"{epilogue} {n}x{k}, {label}",
                    "p50_ms": us / 1e3,
                    "tflops": rate,
                }


def rows_error(got: Fp8Rows, expected: Tensor) -> float:
    """Largest error as a share of e4m3's rounding: half a step of 1/8, 2^-10 of the scale below."""
    allowed = expected.abs() * 2**-4 * 1.02 + got.scales[:, None] * 2**-9
    return float(((got.float() - expected.float()).abs() / allowed).max())


def measure_chains(kernel_dir: Path, row_counts: list[int], reps: int) -> Iterator[Row]:
    gemms = gemm.open_gemms(
        kernel_dir, DEVICE, torch.bfloat16, min_rows=gemm.ALL_ROWS, operands=FP8_OPERANDS
    )
    swiglu = None if gemms is None else gemms.get("swiglu")
    weight, bias, eps = random(1024), random(1024), 1e-6
    for m in (*CHECKED_ROWS, *row_counts):
        x, wide, gated = random(m, 1024), random(m, 2048), random(m, 6144)
        got = {
            "fp8_rows 2048": (launchers.fp8_rows(wide), wide.float()),
            "fp8_rows silu 3072": (
                launchers.fp8_rows(gated, "silu"),
                launchers.swiglu(gated.float()),
            ),
            "rms_norm_fp8 1024": (
                launchers.rms_norm_fp8(x, weight, eps=eps),
                rms_norm.reference(x, weight, eps=eps),
            ),
            "layer_norm_fp8 1024": (
                launchers.layer_norm_fp8(x, weight, bias, eps=eps, residual=x),
                layer_norm.reference(x, weight, bias, eps=eps, residual=x),
            ),
        }
        for name, (rounded, expected) in got.items():
            if (error := rows_error(rounded, expected)) > 1:
                print(f"{name}, {m} rows: WRONG, {error:.2f} of what rounding explains")
                yield {"model": name, "tokens": m, "settings": "Triton", "worst_error": error}
                return
    print("between products", flush=True)
    for m in row_counts:
        o = Operands("swiglu", m, 6144, 1024)
        x, wide, gated = random(m, 1024), random(m, 2048), random(m, 6144)
        calls: dict[str, Call] = {
            "gate/up, then SwiGLU to FP8": lambda o=o: launchers.fp8_rows(
                scaled_mm(o.fp8_x, o.fp8_weight, None), "silu"
            ),
            "fp8_rows 2048": lambda x=wide: launchers.fp8_rows(x),
            "fp8_rows silu 3072": lambda x=gated: launchers.fp8_rows(x, "silu"),
            "rms_norm 1024": lambda x=x: launchers.rms_norm(x, weight, eps=eps),
            "rms_norm_fp8 1024": lambda x=x: launchers.rms_norm_fp8(x, weight, eps=eps),
            "layer_norm 1024": lambda x=x: launchers.layer_norm(
                x, weight, bias, eps=eps, residual=x
            ),
            "layer_norm_fp8 1024": lambda x=x: launchers.layer_norm_fp8(
                x, weight, bias, eps=eps, residual=x
            ),
        }
        if swiglu is not None:
            calls["gate/up with SwiGLU, then to FP8"] = lambda o=o: launchers.fp8_rows(
                swiglu(o.fp8_x, o.fp8_weight)
            )
        for name, us in time_us(calls, 1e10, reps).items():
            print(f"  {m:6} {name:34} {us:8.1f} us", flush=True)
            yield {"model": name, "tokens": m, "settings": "Triton", "p50_ms": us / 1e3}


def measure_models(
    kernel_dir: Path, sizes: list[tuple[int, int]], step_tokens: int, reps: int
) -> Iterator[Row]:
    settings = AttentionSettings(kernel_dir=kernel_dir)
    for name in MODELS:
        shape, runners = SHAPES[name], {}
        for compute in (engine.BF16, FP8):
            runner, backend, weights = engine.build(shape, settings, compute)
            limit = MIN_FP8_COSINE if compute.fp8 else engine.MIN_COSINE
            runners[compute.name] = (runner, engine.check(shape, runner, weights, limit))
            del weights
            torch.cuda.empty_cache()
            print(f"{name} {compute.name}: cosine >= {runners[compute.name][1]:.5f}", flush=True)
        for n, length in sizes:
            step = max(length, min(n * length, step_tokens))
            best: dict[str, dict[str, Any]] = {}
            for _ in range(reps):
                for label, (runner, _) in runners.items():
                    result = engine.time_size(runner, n, length, step)
                    if label not in best or result["device_ms"] < best[label]["device_ms"]:
                        best[label] = result
            for label, result in best.items():
                yield engine.gpu_row(
                    name,
                    n=n,
                    tokens=length,
                    cosine_min=round(runners[label][1], 6),
                    tflops=round(
                        shape.cost().matmul_flops([length] * n) / result["device_ms"] / 1e9, 1
                    ),
                    **result,
                    settings=f"{label}, attention {backend}, step {step} tokens, best of {reps}",
                )
                ms, rate = result["device_ms"], result["seq_per_s"]
                print(f"  {n}x{length} {label:9} {ms:9.3f} ms {rate:9.1f}/s", flush=True)
        for runner, _ in runners.values():
            runner.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", default=["gemms", "chains", "models"])
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--sizes", type=engine._size, nargs="+", default=list(SIZES))
    parser.add_argument("--step-tokens", type=int, default=8192)
    parser.add_argument("--reps", type=int, default=11)
    parser.add_argument("--model-reps", type=int, default=3)
    options, where = options_of(parser)
    wrong = False
    parts: dict[str, Callable[[], Iterator[Row]]] = {
        "gemms": lambda: measure_products(options.kernel_dir, options.rows, options.reps),
        "chains": lambda: measure_chains(options.kernel_dir, options.rows, options.reps),
        "models": lambda: measure_models(
            options.kernel_dir, options.sizes, options.step_tokens, options.model_reps
        ),
    }
    for part in options.parts:
        for fields in parts[part]():
            wrong |= fields.get("worst_error", 0) > 1
            row = (
                fields if part == "models" else rows.row(f"fp8-{part}", "hotbed", **fields, **where)
            )
            if options.out is not None:
                rows.append(options.out, [row | {"commit": where["commit"]}])
    return int(wrong)


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
