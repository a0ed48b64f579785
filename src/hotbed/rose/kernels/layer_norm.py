# mypy: ignore-errors
# ruff: noqa: PLR0917  (a kernel's pointers go by position)
"""LayerNorm over rows, alone or behind what ends a post-norm block: bias and residual.

    v = x [+ bias] [+ residual]
    y = (v - mean(v)) / sqrt(var(v) + eps) * w + b              (Ba et al. 2016, arXiv 1607.06450)

With the bias of the linear layer before it added here, that GEMM has an epilogue without operands.
The variance is taken around the mean in a second pass over registers, so that rows far from zero
lose nothing. For a linear layer that reads it so, y comes in FP8 with a scale for each row too
(`fp8`). Bytes moved: 2 T D elements; 3 T D with a residual; T D bytes more for FP8.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from hotbed.rose.kernels.approx import COMPILED, quantized
from hotbed.rose.kernels.fp8 import Fp8Rows, empty_rows
from hotbed.rose.kernels.launch import (
    check_matrix,
    check_row_width,
    check_vector,
    row_launch,
    use_pdl,
)


def reference(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    eps: float,
    linear_bias: Tensor | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """y [T, D] in fp32."""
    v = x.float()
    if linear_bias is not None:
        v = v + linear_bias.float()
    if residual is not None:
        v = v + residual.float()
    return F.layer_norm(v, v.shape[-1:], weight.float(), bias.float(), eps)


@triton.jit
def normalize_rows(v, in_row, weight, bias, eps, D: tl.constexpr):
    """LayerNorm of fp32 v [ROWS, BLOCK], whose columns outside `in_row` [BLOCK] hold zeros."""
    mean = tl.sum(v, axis=1) / D
    centered = tl.where(in_row[None, :], v - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(centered * centered, axis=1) / D + eps)
    return centered * scale[:, None] * weight[None, :] + bias[None, :]


@triton.jit(do_not_specialize=["num_rows"])
def _layer_norm_kernel(
    x_ptr,
    linear_bias_ptr,
    residual_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    fp8_ptr,
    scales_ptr,
    num_rows,
    eps,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    LINEAR_BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    FP8: tl.constexpr,
    APPROX: tl.constexpr,
    PDL: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    in_row = cols < D
    weight = tl.load(weight_ptr + cols, mask=in_row, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + cols, mask=in_row, other=0.0).to(tl.float32)
    if LINEAR_BIAS:
        linear_bias = tl.load(linear_bias_ptr + cols, mask=in_row, other=0.0).to(tl.float32)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    offsets = rows.to(tl.int64)[:, None] * D + cols[None, :]
    mask = (rows < num_rows)[:, None] & in_row[None, :]
    v = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    if LINEAR_BIAS:
        v += linear_bias[None, :]
    if RESIDUAL:
        v += tl.load(residual_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    y = normalize_rows(v, in_row, weight, bias, eps, D)
    tl.store(out_ptr + offsets, y, mask=mask)
    if FP8:
        values, scales = quantized(y, APPROX)
        tl.store(fp8_ptr + offsets, values, mask=mask)
        tl.store(scales_ptr + rows, scales, mask=rows < num_rows)


def layer_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    eps: float,
    linear_bias: Tensor | None = None,
    residual: Tensor | None = None,
    fixed: bool = False,
    pdl: bool | None = None,
) -> Tensor:
    """LayerNorm of x [T, D] (+ `linear_bias` [D]) (+ `residual` [T, D]): a new [T, D].

    With `fixed` a row's bits do not depend on how many rows there are.
    """
    return _launch(x, weight, bias, eps, linear_bias, residual, fixed, pdl, None)


def layer_norm_fp8(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    eps: float,
    linear_bias: Tensor | None = None,
    residual: Tensor | None = None,
    fixed: bool = False,
    pdl: bool | None = None,
) -> Fp8Rows:
    """The same in FP8, with y in x's dtype as `wide`: the residual of what comes next."""
    rows = empty_rows(*x.shape, x.device)
    wide = _launch(x, weight, bias, eps, linear_bias, residual, fixed, pdl, rows)
    return Fp8Rows(rows.values, rows.scales, wide)


def _launch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    linear_bias: Tensor | None,
    residual: Tensor | None,
    fixed: bool,
    pdl: bool | None,
    fp8: Fp8Rows | None,
) -> Tensor:
    check_matrix("x", x)
    width = check_row_width(x)
    check_vector("weight", weight, width)
    check_vector("bias", bias, width)
    if linear_bias is not None:
        check_vector("linear_bias", linear_bias, width)
    if residual is not None:
        check_matrix("residual", residual, like=x)
    out = torch.empty_like(x)
    launch = row_launch(len(x), width, fixed=fixed)
    pdl = use_pdl(x, pdl)
    _layer_norm_kernel[launch.grid(len(x))](
        x,
        weight if linear_bias is None else linear_bias,
        x if residual is None else residual,
        weight,
        bias,
        out,
        out if fp8 is None else fp8.values,
        out if fp8 is None else fp8.scales,
        len(x),
        eps,
        D=width,
        BLOCK=launch.block,
        ROWS=launch.rows,
        LINEAR_BIAS=linear_bias is not None,
        RESIDUAL=residual is not None,
        FP8=fp8 is not None,
        APPROX=COMPILED,
        PDL=pdl,
        num_warps=launch.num_warps,
        launch_pdl=pdl,
    )
    return out


def bytes_moved(num_rows: int, width: int, *, itemsize: int = 2, residual: bool = False) -> int:
    """Bytes of device memory a call has to read and write."""
    return (3 if residual else 2) * num_rows * width * itemsize
