"""Large steps with every pass between two products inside one: `python -m bench.large_steps`.

    python -m bench.large_build --out kernels-large                           (no GPU needed)
    python -m bench.large_steps --kernel-dir kernels --large kernels-large --out large-steps.jsonl

Models of `bench.shapes` with random weights, as ROSE runs them and by `bench.large_models`, each as
one CUDA graph a step, replayed in turn. Right first: each kernel against its reference, then both
models' rows against plain fp32. Products of each size take the variant that is the fastest there,
measured before against cuBLAS's bare product.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.attention import medians_us
from bench.gemm import CHECKED_ROWS, Call, Row, share_of_rounding, time_us
from bench.large_kernels import (
    HEAD_DIM,
    VARIANTS,
    Columns,
    Kernels,
    References,
    Rows,
    Shape,
    Variant,
)
from bench.large_models import FusedDecoder, FusedEncoder, finish
from bench.small_attention import SmallAttention
from bench.whole_steps import DEVICE, Forward, graph_of, step_of
from hotbed.bench import rows
from hotbed.bench.shapes import SHAPES, random_weights
from hotbed.doctor.plain import plain_row
from hotbed.rose.attention.select import AttentionSettings, select_backend
from hotbed.rose.batch import PackedBatch
from hotbed.rose.compute import Compute, open_mode
from hotbed.rose.kernels import files
from hotbed.rose.kernels.fp8 import quantize_rows
from hotbed.rose.kernels.gemm_files import TILE
from hotbed.rose.kernels.hopper.small_gemm import MAX_TOKENS
from hotbed.rose.layers import small_encoder
from hotbed.rose.layers.fused import with_mode
from hotbed.rose.layers.rotary_scaling import plain_frequencies
from hotbed.rose.registry import FAMILIES

STEPS = (
    (1, 192),
    (1, 256),
    (1, 512),
    (8, 128),
    (2, 512),
    (4, 512),
    (8, 512),
    (16, 512),
    (25, 512),
    (1, 4096),
    (2, 4096),
)
# The 0.6B shape's layer; bge-m3's has the same width.
HEADS, KV, D, F_DECODER, F_ENCODER = 16, 8, 1024, 3072, 4096
QKV = (HEADS + 2 * KV) * HEAD_DIM


def allowed(file_name: str) -> float:
    """The largest error of a kernel, in shares of one rounding."""
    # FP8's sums by the tensor core have 14 bits; others differ in the order of D squares.
    return 16.0 if file_name.startswith("fp8") else 1.5


def random(*shape: int) -> Tensor:
    return torch.randn(shape, device=DEVICE, dtype=torch.bfloat16)


def of_columns(n: int) -> Tensor:
    return torch.randn(1, n, device=DEVICE)


def columns() -> Columns:
    norms = (1 + 0.1 * torch.randn(HEAD_DIM, device=DEVICE) for _ in range(2))
    return Columns.of(plain_frequencies(HEAD_DIM, 1e6, DEVICE), *norms, HEADS, KV)


def errors(products: Kernels) -> dict[str, float]:
    """`share_of_rounding` of each kernel, by its file's name.

    Expected is computed in fp32, so that one rounding is allowed, not two.
    """
    worst = dict[str, float]()
    of_product = {name: variants_of(name) for name in products.usual}
    for i in range(max(map(len, of_product.values()))):
        products.usual |= {name: of[i] for name, of in of_product.items() if i < len(of)}
        note_errors(products, worst)
    products.usual |= {name: of[0] for name, of in of_product.items()}
    return worst


def variants_of(name: str) -> list[Variant]:
    return [variant for variant in VARIANTS if variant.name == name]


def note_errors(products: Kernels, worst: dict[str, float]) -> None:
    """Into `worst`, those of the variants that are the usual ones now."""
    right = References()

    def note(name: str, got: Tensor, expected: Tensor) -> None:
        file = products.usual[name].file_name
        worst[file] = max(worst.get(file, 0.0), share_of_rounding(got, expected.float()))

    for m in CHECKED_ROWS:
        x, scale = random(m, D), torch.rand(1, m, device=DEVICE) + 0.5
        wide_x, norm = x.float(), Rows(scale, 0.1 * torch.randn(1, m, device=DEVICE))
        at, head = torch.randint(32_768, (1, m), device=DEVICE).float(), columns()
        weight = random(QKV, D) / D**0.5
        expected = right.qkv(wide_x, weight.float(), scale, at, head)
        note("qkv", products.qkv(x, weight, scale, at, head), expected)
        fp8 = (quantize_rows(x), quantize_rows(weight), at, head)
        note("fp8_qkv", products.fp8_qkv(*fp8), right.fp8_qkv(*fp8))
        weight, bias = random(F_ENCODER, D) / D**0.5, of_columns(F_ENCODER)
        wide_fp8 = (fp8[0], quantize_rows(weight), bias)
        note("fp8_gelu", products.fp8_gelu(*wide_fp8), right.fp8_gelu(*wide_fp8))
        weight = random(2 * F_DECODER, D) / D**0.5
        expected = right.swiglu(wide_x, weight.float(), scale)
        note("swiglu", products.swiglu(x, weight, scale), expected)
        wg, wb = of_columns(len(weight)), of_columns(len(weight))
        for gelu in (False, True):
            got = products.ln_bias(x, weight, norm, wg, wb, gelu=gelu)
            expected = right.ln_bias(wide_x, weight.float(), norm, wg, wb, gelu=gelu)
            note("ln_gelu" if gelu else "ln_bias", got, expected)
        weight, wide = random(D, F_ENCODER) / F_ENCODER**0.5, random(m, F_ENCODER)
        for name in ("add", "ln_add"):
            residual = random(m, D)
            plain = residual.float()
            if name == "add":
                got = products.add_(wide, weight, residual)
                expected = right.add_(wide.float(), weight.float(), plain)
            else:
                bias, w = of_columns(D), of_columns(D)
                sums, got = products.ln_add_(wide, weight, bias, residual, norm, w)
                more = (bias, plain, norm, w)
                expected_sums, expected = right.ln_add_(wide.float(), weight.float(), *more)
                note("ln_add", in_eight(sums), expected_sums)
            note(name, residual, plain)
            note(name, in_eight(got), expected)


def in_eight(sums: Tensor) -> Tensor:
    """Sums over columns by tile, for tiles of 128 columns."""
    return sums.view(len(sums), D // TILE.n, -1).sum(-1)


def measure(model: str, options: argparse.Namespace, products: Kernels) -> Iterator[Row]:
    shape = SHAPES[model]
    config, weights, family = shape.config, random_weights(shape, DEVICE), FAMILIES[shape.family]
    settings = AttentionSettings(kernel_dir=options.kernel_dir)
    backend = select_backend(family.attention_specs(config)[0], DEVICE, settings=settings)
    with with_mode(open_mode(Compute(torch.bfloat16), options.kernel_dir, DEVICE)):
        kind: Any = FusedDecoder if shape.family == "decoder" else FusedEncoder
        forwards = {
            "as now": family.build(config, weights, [backend]).forward,
            "fused": kind(config, weights, backend, products).forward,
            "fused, small attention": kind(config, weights, SmallAttention(), products).forward,
        }
    batch = step_of(4, 512, config.vocab_size)
    expected = plain_row(shape.family, config, shape.recipe, weights, batch.token_ids[:512])
    cosines = {}
    for name, forward in forwards.items():
        states = forward(batch)[:512].float()
        row = {"last": states[-1], "cls": states[0]}.get(shape.recipe.pooling, states.mean(0))
        cosines[name] = float(F.cosine_similarity(expected, row, dim=0))
    print(f"{model}: cosine to fp32 {cosines}", flush=True)
    if not min(cosines.values()) > cosines["as now"] - 1e-3:
        sys.exit("the fused layers are wrong: nothing is timed")
    for count, length in STEPS:
        batch = step_of(count, length, config.vocab_size)
        if shape.family == "bert" and count * length <= MAX_TOKENS:
            forwards["small"] = as_small_step(forwards["as now"])
            cosines["small"] = cosines["as now"]
        else:
            forwards.pop("small", None)
        graphs = {name: graph_of(forward, batch) for name, forward in forwards.items()}
        times = medians_us(graphs, 1, options.reps)
        print(f"  {count} x {length}: " + ", ".join(f"{n} {t:.0f} us" for n, t in times.items()))
        for name, us in times.items():
            yield {
                "model": model,
                "n": count,
                "tokens": length,
                "settings": f"large steps, {name}",
                "device_ms": round(us / 1e3, 4),
                "cosine_min": cosines[name],
            }


def as_small_step(forward: Forward) -> Forward:
    """With the kernels for few tokens, beyond the number up to which an encoder takes them."""

    def small(batch: PackedBatch) -> Tensor:
        with mock.patch.object(small_encoder, "_MAX_TOKENS", MAX_TOKENS):
            return forward(batch)

    return small


@dataclass(frozen=True)
class Part:
    """A kernel as a layer calls it, and cuBLAS's bare product of the same sizes.

    Attributes:
        size: N K of the product.
    """

    call: Call
    size: int
    bare: Call | None = None


def parts_of(p: Kernels, m: int) -> dict[str, Part]:
    """Each kernel at `m` rows."""
    x, attended, residual = random(m, D), random(m, HEADS * HEAD_DIM), random(m, D)
    gated, wide, qkv = random(m, F_DECODER), random(m, F_ENCODER), random(QKV, D)
    gate_up, up, head = random(2 * F_DECODER, D), random(F_ENCODER, D), columns()
    out, down = random(D, HEADS * HEAD_DIM), random(D, F_DECODER)
    square, three, last = random(D, D), random(3 * D, D), random(D, F_ENCODER)
    scale, at = torch.rand(1, m, device=DEVICE), torch.arange(m, device=DEVICE).float()[None]
    norm, squares = Rows(scale, scale), torch.rand(m, D // 128, device=DEVICE)
    # The residual is written over call after call: it may not grow beyond all bounds.
    bias, w = of_columns(D), of_columns(D).clamp(-1, 1)
    three_row, wide_row = of_columns(3 * D), of_columns(F_ENCODER)
    fp8, fp8_up = (quantize_rows(x), quantize_rows(qkv)), quantize_rows(up)

    def ln_bias(weight: Tensor, row: Tensor, *, gelu: bool) -> object:
        return p.ln_bias(x, weight, norm, row, row, gelu=gelu)

    def ln_add(of: Tensor, weight: Tensor) -> object:
        return p.ln_add_(of, weight, bias, residual, norm, w)

    def bare(of: Tensor, weight: Tensor) -> Call:
        return lambda: of @ weight.T

    return {
        "qkv": Part(lambda: p.qkv(x, qkv, scale, at, head), D * QKV, bare(x, qkv)),
        "fp8_qkv": Part(lambda: p.fp8_qkv(*fp8, at, head), D * QKV),
        "out": Part(
            lambda: p.add_(attended, out, residual),
            len(out.T) * D,
            lambda: residual.addmm_(attended, out.T),
        ),
        "gate_up": Part(lambda: p.swiglu(x, gate_up, scale), 2 * D * F_DECODER, bare(x, gate_up)),
        "down": Part(
            lambda: p.add_(gated, down, residual),
            F_DECODER * D,
            lambda: residual.addmm_(gated, down.T),
        ),
        "bert qkv": Part(lambda: ln_bias(three, three_row, gelu=False), 3 * D * D, bare(x, three)),
        "bert out": Part(lambda: ln_add(x, square), D * D, bare(x, square)),
        "bert up": Part(lambda: ln_bias(up, wide_row, gelu=True), D * F_ENCODER, bare(x, up)),
        "bert up, fp8": Part(lambda: p.fp8_gelu(fp8[0], fp8_up, wide_row), D * F_ENCODER),
        "bert down": Part(lambda: ln_add(wide, last), F_ENCODER * D, bare(wide, last)),
        "finish": Part(lambda: finish(squares, D, 1e-6), D * D),
        "finish LayerNorm": Part(lambda: finish(squares, D, 1e-6, squares), D * D),
    }


def tune(products: Kernels, m: int, reps: int) -> Iterator[Row]:
    """Times at `m` rows; the fastest variant of each product is chosen."""
    print(f"  {m} rows, us", flush=True)
    for name, part in parts_of(products, m).items():
        products.taken = None
        part.call()
        taken, calls = products.taken, dict[str, Call]()
        if taken is None:
            calls["Triton"] = part.call
        else:
            variants = {variant.label: variant for variant in variants_of(taken[0])}

            def call(variant: Variant, part: Part = part, taken: Shape = taken) -> object:
                products.chosen[taken] = variant
                return part.call()

            calls = {label: functools.partial(call, v) for label, v in variants.items()}
        if part.bare is not None:
            calls["cuBLAS"] = part.bare
        times = time_us(calls, 2.0 * m * part.size, reps)
        if taken is not None:
            best = min(variants, key=times.__getitem__)
            products.chosen[taken] = variants[best]
        print(f"    {name:16} " + ", ".join(f"{n} {us:.1f}" for n, us in times.items()))
        for label, us in times.items():
            yield {"model": f"large {name}", "settings": label, "tokens": m, "p50_ms": us / 1e3}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel-dir", type=Path, required=True)
    parser.add_argument("--large", type=Path, required=True, help="of bench.large_build")
    parser.add_argument("--models", nargs="+", default=["pplx-embed-0.6b", "bge-m3"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--reps", type=int, default=15)
    parser.add_argument("--commit", help="for the rows, where the tree is no git checkout")
    options = parser.parse_args()
    if (reason := files.missing(options.large, DEVICE)) is not None:
        print(reason, file=sys.stderr)
        return 2
    torch.manual_seed(0)
    kernels = Kernels(options.large, DEVICE)
    worst = errors(kernels)
    print("errors as shares of one rounding:", worst, flush=True)
    if wrong := [name for name, error in worst.items() if error > allowed(name)]:
        print("wrong:", wrong, file=sys.stderr)
        return 1
    where = {"device": torch.cuda.get_device_name(), "commit": options.commit or rows.commit()}
    sizes = sorted({count * length for count, length in STEPS})
    parts = [tune(kernels, m, options.reps) for m in sizes]
    parts += [measure(model, options, kernels) for model in options.models]
    for part in parts:
        for fields in part:
            if options.out is not None:
                rows.append(options.out, [rows.row("large-steps", "hotbed", **fields, **where)])
    return 0


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
