"""Compiles the kernels of `bench.large_kernels` from quack's epilogues, without a GPU.

python -m bench.large_build --out kernels-large
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from bench.large_kernels import (
    GELU_FITS,
    GELU_LIMIT,
    HEAD_DIM,
    HEAD_EPS,
    VARIANTS,
    Variant,
)
from hotbed.rose.build_kernels import find_tools, link
from hotbed.rose.kernels import gemm_build
from hotbed.rose.kernels.gemm_files import CLUSTER, GemmKernel

_M, _N, _K = 512, 1024, 512  # a sample: the kernels take any size
# Operands of epilogues by kind, in the order of the kernels' arguments.
_ROWS = ("rstd", "s", "t", "rows", "at")
_QKV = ("at", "turns", "of_head", "normed", "kept")
_OPERANDS: dict[str, tuple[str, ...]] = {
    "qkv": ("rstd", *_QKV),
    "fp8_qkv": ("columns", "rows", *_QKV),
    "fp8_gelu": ("columns", "rows", "bias", "activated"),
    "add": ("squares",),
    "swiglu": ("rstd", "activated"),
    "ln_bias": ("s", "t", "wg", "wb"),
    "ln_gelu": ("s", "t", "wg", "wb", "activated"),
    "ln_add": ("bias", "s", "t", "w", "sums", "squares"),
}


def compile_kernel(variant: Variant, library: Any) -> Any:
    """The compiled function, from tensors without data."""
    name, tile = variant.name, variant.tile
    host: Any = importlib.import_module("quack.gemm_runtime.host")
    host.get_max_active_clusters = lambda cluster_size: 1  # an argument of the kernel
    is_fp8 = name.startswith("fp8")

    def bf16(*shape: int) -> Tensor:
        return torch.empty(*shape, dtype=torch.bfloat16)

    def sample(operand: str) -> Any:
        if operand == "of_head":
            return HEAD_DIM
        if operand == "activated":
            return bf16(_M, _N // 2 if name == "swiglu" else _N)
        if operand in ("sums", "squares"):
            return torch.empty(_M, _N // tile.n, dtype=torch.float32)
        return torch.empty(1, _M if operand in _ROWS else _N, dtype=torch.float32)

    with FakeTensorMode(), torch.device("cuda"):
        x, weight, out = bf16(_M, _K), bf16(_N, _K), bf16(_M, _N)
        if is_fp8:
            x, weight = x.to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn)
        operands = {operand: sample(operand) for operand in _OPERANDS[name]}
        plan = _epilogue(variant, library).gemm(
            x,
            weight,
            None if "activated" in operands else out,
            torch.empty_like(out) if name.endswith("add") else None,
            epi_args=operands,
            tile_M=tile.m,
            tile_N=tile.n,
            cluster_M=CLUSTER,
            pingpong=tile.pingpong,
            concat_layout=("B",) if name == "swiglu" else None,
            split_k=variant.split,
            post_init_attrs=(("fp8_slow_accum", False),) * is_fp8,
            _launch=False,
        )
    arguments = [*operands, "split_k_semaphore", "split_k_workspace"]
    assert list(plan.arg_template) == arguments, "quack orders a kernel's arguments otherwise"
    return plan.compiled_fn


def _gelu(form: str, library: Any) -> Any:
    """As `bench.large_kernels.GELU_FITS` has it."""
    if not form:
        return library.act_fn_map["gelu_erf"]
    tanh: Any = importlib.import_module("quack.activation").tanh
    fmin: Any = importlib.import_module("cutlass.cute").arch.fmin
    first, second, *rest = GELU_FITS[form]
    third = rest[0] if rest else 0.0

    def fit1(x: Any) -> Any:
        half = 0.5 * x
        return half * tanh(x * (first + second * (x * x))) + half

    def fit2(x: Any) -> Any:
        half, square = 0.5 * x, fmin(x * x, GELU_LIMIT)
        return half * tanh(x * (first + square * (second + third * square))) + half

    return fit2 if rest else fit1


def _epilogue(variant: Variant, library: Any) -> Any:
    """The epilogue's arithmetic in fp32, compiled from each function's source."""
    name = variant.name
    gemm_epilogue: Any = importlib.import_module("quack.epilogue.frontend").gemm_epilogue
    ops: Any = importlib.import_module("quack.epilogue.ops")
    rotary: Any = importlib.import_module("quack.epilogue.rotary")
    of_head: Any = importlib.import_module("quack.epilogue.head_rmsnorm").HeadRstd
    unpack, pack, swiglu = library.unpack, library.pack, library.swiglu
    gelu, angle, sincos = _gelu(variant.form, library), rotary._angle_turns, rotary._sincos_turns

    def squares(acc: Any, rstd: Any) -> Any:
        y = acc * rstd
        return {"of_head": y * y}

    def rotated(
        acc: Any, rstd: Any, at: Any, turns: Any, of_head: Any, normed: Any, kept: Any
    ) -> Any:
        first, second = unpack(acc * rstd * (of_head * normed + kept))
        sin, cos = sincos(*angle(at, turns))
        return {"D": pack(first * cos - second * sin, second * cos + first * sin)}

    def scaled_squares(acc: Any, columns: Any, rows: Any) -> Any:
        y = acc * rows * columns
        return {"of_head": y * y}

    def scaled_rotated(
        acc: Any,
        columns: Any,
        rows: Any,
        at: Any,
        turns: Any,
        of_head: Any,
        normed: Any,
        kept: Any,
    ) -> Any:
        first, second = unpack(acc * rows * columns * (of_head * normed + kept))
        sin, cos = sincos(*angle(at, turns))
        return {"D": pack(first * cos - second * sin, second * cos + first * sin)}

    def added(acc: Any, c: Any) -> Any:
        y = acc + c
        return {"D": y, "squares": (y, y)}

    def gated(acc: Any, rstd: Any) -> Any:
        gate, up = unpack(acc * rstd)
        return {"activated": swiglu(gate, up)}

    def ln_bias(acc: Any, s: Any, t: Any, wg: Any, wb: Any) -> Any:
        return {"D": acc * s - t * wg + wb}

    def ln_gelu(acc: Any, s: Any, t: Any, wg: Any, wb: Any) -> Any:
        return {"activated": gelu(acc * s - t * wg + wb)}

    def scaled_gelu(acc: Any, columns: Any, rows: Any, bias: Any) -> Any:
        return {"activated": gelu(acc * rows * columns + bias)}

    def ln_added(acc: Any, c: Any, bias: Any, s: Any, t: Any, w: Any) -> Any:
        y = acc + bias + (c * s - t) * w
        return {"D": y, "sums": y, "squares": (y, y)}

    reduce = {"squares": ops.ColVecReduce("squares", scaled=True)}
    sums = {"sums": ops.ColVecReduce("sums")}
    heads = {"prepass_outs": ("of_head",), "mode": "acc_pair"}
    gate = {"outputs": ("activated",), "mode": "acc_pair"}
    forms: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "qkv": (rotated, {"prepass": squares, **heads}),
        "fp8_qkv": (scaled_rotated, {"prepass": scaled_squares, **heads}),
        "fp8_gelu": (scaled_gelu, {"outputs": ("activated",)}),
        "add": (added, {"reduces": reduce}),
        "swiglu": (gated, gate),
        "ln_bias": (ln_bias, {}),
        "ln_gelu": (ln_gelu, {"outputs": ("activated",)}),
        "ln_add": (ln_added, {"reduces": sums | reduce}),
    }
    loads: dict[str, Any] = {}
    for operand in _OPERANDS[name]:
        if operand == "of_head":
            loads[operand] = of_head(operand, eps=HEAD_EPS)
        elif operand in _ROWS:
            loads[operand] = ops.ColVecLoad(operand)
        elif operand not in ("activated", "sums", "squares"):
            loads[operand] = ops.RowVecLoad(operand)
    function, more = forms[name]
    return gemm_epilogue(ops=loads, **more)(function)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the kernels")
    parser.add_argument("--cudart", type=Path)
    options = parser.parse_args()
    os.environ.update(gemm_build.ENVIRONMENT)
    tools = find_tools([GemmKernel("plain")], options.cudart)
    options.out.mkdir(parents=True, exist_ok=True)
    for variant in VARIANTS:
        compiled = compile_kernel(variant, tools.sources[gemm_build.PACKAGE])
        print(link(compiled, options.out / variant.file_name, tools), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
