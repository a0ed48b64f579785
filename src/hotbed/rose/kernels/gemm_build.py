"""Compiles GEMMs with a fused epilogue from quack's kernels; see `hotbed.rose.build_kernels`.

The weight goes in as it lies, [N, K]. For a gated epilogue quack takes gate and up interleaved, or
(concat layout) reads the halves of a stacked [gate; up] in turn through its tensor map: no second
copy of the weights, and other layers read them as they are.
"""

from __future__ import annotations

import importlib
from typing import Any, get_args

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from hotbed.rose.kernels.gemm_files import CLUSTER, FP8_OPERANDS, Epilogue, GemmKernel, Operands

PACKAGE = "quack-kernels"
# Read by quack and by the CuTe compiler when they are imported.
ENVIRONMENT = {"QUACK_ARCH": "90", "CUTE_DSL_ARCH": "sm_90a", "QUACK_CACHE_ENABLED": "0"}
_ACTIVATIONS: tuple[Epilogue, ...] = ("swiglu", "gelu_bias", "gelu_tanh_bias")
GELU_FIT = (0.797507882, 0.0370056482, -0.000351517129)
"""gelu(x) = x / 2 (1 + tanh(x P(x^2))): coefficients of P, fitted here; off by 2.5e-5 at most.

erf(x / sqrt 2) = tanh(x P(x^2)) has an even P. An erf takes so many instructions that the products
wait for the epilogue; tanh is one, off by up to 2^-11 of its result. On real weights
(all-MiniLM-L6-v2, 150 texts, that error emulated) it moves rows to a cosine of 0.9999996 where the
rounding of all to BF16 moves them to 0.9999. The usual form by tanh is off by 4.7e-4.
"""
GELU_LIMIT = 36.0
"""Of x^2 in P: tanh is 1 from there on, and P has a sign of its own further out."""
# A sample, as the kernel takes any size: rows, columns, depth.
_M, _N, _K = 512, 1024, 512


def load() -> Any:
    """quack's modules, imported; raises ImportError."""
    return importlib.import_module("quack.epilogue.library")


def default_kernels() -> list[GemmKernel]:
    """Every epilogue for BF16 and FP8, in the tile that ROSE takes."""
    kinds: tuple[Operands, ...] = ("bf16", FP8_OPERANDS)
    return [GemmKernel.chosen(e, operands) for operands in kinds for e in get_args(Epilogue)]


def compile_kernel(kernel: GemmKernel, library: Any) -> Any:
    """The compiled function, from tensors without data."""
    host: Any = importlib.import_module("quack.gemm_runtime.host")
    # An argument of the kernel, so of no account here; asking the driver for it would need a GPU.
    host.get_max_active_clusters = lambda cluster_size: 1
    is_fp8 = kernel.operands != "bf16"
    gated = kernel.epilogue == "swiglu"
    with FakeTensorMode(), torch.device("cuda"):
        x, weight = (_empty(rows, _K, torch.bfloat16) for rows in (_M, _N))
        if is_fp8:
            x, weight = x.to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn)
        result = _empty(_M, _N // 2 if gated else _N, torch.bfloat16)
        operands: dict[str, Tensor] = {}
        if kernel.epilogue in _ACTIVATIONS:
            operands["mAuxOut"], result_of_sum = result, None
        else:
            result_of_sum = result
        if kernel.epilogue.endswith("bias"):
            operands["bias"] = _empty(1, _N, torch.bfloat16)
        if is_fp8:
            operands["columns"] = _empty(1, _N, torch.float32)
            operands["rows"] = _empty(1, _M, torch.float32)
        plan = _epilogue(kernel, library, is_fp8=is_fp8).gemm(
            x,
            weight,
            result_of_sum,
            torch.empty_like(result) if kernel.epilogue == "add" else None,
            epi_args=operands,
            tile_M=kernel.tile.m,
            tile_N=kernel.tile.n,
            cluster_M=CLUSTER,
            pingpong=kernel.tile.pingpong,
            concat_layout=("B",) if gated else None,
            post_init_attrs=(("fp8_slow_accum", False),) * (kernel.operands == "fp8fast"),
            _launch=False,
        )
    return plan.compiled_fn


def _empty(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(rows, columns, dtype=dtype)


def _exact_gelu() -> Any:
    """The function for quack to compile; see `GELU_FIT`."""
    tanh: Any = importlib.import_module("quack.activation").tanh
    fmin: Any = importlib.import_module("cutlass.cute").arch.fmin
    first, second, third = GELU_FIT

    def gelu(x: Any) -> Any:
        half, square = 0.5 * x, fmin(x * x, GELU_LIMIT)
        return half * tanh(x * (first + square * (second + third * square))) + half

    return gelu


def _epilogue(kernel: GemmKernel, library: Any, *, is_fp8: bool) -> Any:
    """The epilogue's arithmetic, in fp32, as quack compiles it: each form is a function of its own,
    as its source is what is compiled.
    """
    gemm_epilogue: Any = importlib.import_module("quack.epilogue.frontend").gemm_epilogue
    ops: Any = importlib.import_module("quack.epilogue.ops")
    scales = {"columns": ops.RowVecLoad("columns"), "rows": ops.ColVecLoad("rows")}
    bias = {"bias": ops.RowVecLoad("bias")}
    unpack, swiglu = library.unpack, library.swiglu
    act: Any = None
    if kernel.epilogue.startswith("gelu"):
        is_tanh = kernel.epilogue == "gelu_tanh_bias"
        act = library.act_fn_map["gelu_tanh_approx"] if is_tanh else _exact_gelu()

    def plain(acc: Any) -> Any:
        return {"D": acc}

    def with_bias(acc: Any, bias: Any) -> Any:
        return {"D": acc + bias}

    def add(acc: Any, c: Any) -> Any:
        return {"D": acc + c}

    def gated(acc: Any) -> Any:
        gate, up = unpack(acc)
        return {"mAuxOut": swiglu(gate, up)}

    def gelu(acc: Any, bias: Any) -> Any:
        return {"mAuxOut": act(acc + bias)}

    def scaled_plain(acc: Any, columns: Any, rows: Any) -> Any:
        return {"D": acc * rows * columns}

    def scaled_bias(acc: Any, columns: Any, rows: Any, bias: Any) -> Any:
        return {"D": acc * rows * columns + bias}

    def scaled_add(acc: Any, c: Any, columns: Any, rows: Any) -> Any:
        return {"D": acc * rows * columns + c}

    def scaled_gated(acc: Any, columns: Any, rows: Any) -> Any:
        gate, up = unpack(acc * rows * columns)
        return {"mAuxOut": swiglu(gate, up)}

    def scaled_gelu(acc: Any, columns: Any, rows: Any, bias: Any) -> Any:
        return {"mAuxOut": act(acc * rows * columns + bias)}

    forms: dict[Epilogue, tuple[Any, Any]] = {
        "plain": (plain, scaled_plain),
        "bias": (with_bias, scaled_bias),
        "add": (add, scaled_add),
        "swiglu": (gated, scaled_gated),
        "gelu_bias": (gelu, scaled_gelu),
        "gelu_tanh_bias": (gelu, scaled_gelu),
    }
    takes = (scales if is_fp8 else {}) | (bias if kernel.epilogue.endswith("bias") else {})
    is_activation = kernel.epilogue in _ACTIVATIONS
    return gemm_epilogue(
        outputs=("mAuxOut",) if is_activation else (),
        ops=takes,
        mode="acc_pair" if kernel.epilogue == "swiglu" else None,
    )(forms[kernel.epilogue][is_fp8])
