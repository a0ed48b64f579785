# mypy: ignore-errors
# ruff: noqa: PLR0917  (a kernel's pointers go by position)
"""LayerNorm over rows, alone or behind what ends a post-norm block: bias and residual.

    v = x [+ bias] [+ residual]
    y = (v - mean(v)) / sqrt(var(v) + eps) * w + b              (Ba et al. 2016, arXiv 1607.06450)

With the bias of the linear layer before it added here, that GEMM has an epilogue without operands.
The variance is taken around the mean in a second pass over registers, so that rows far from zero
lose nothing. Bytes moved: 2 T D elements; 3 T D with a residual.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

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
    num_rows,
    eps,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    LINEAR_BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
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
    tl.store(out_ptr + offsets, normalize_rows(v, in_row, weight, bias, eps, D), mask=mask)


def layer_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    eps: float,
    linear_bias: Tensor | None = None,
    residual: Tensor | None = None,
    pdl: bool | None = None,
) -> Tensor:
    """LayerNorm of x [T, D] (+ `linear_bias` [D]) (+ `residual` [T, D]): a new [T, D]."""
    check_matrix("x", x)
    width = check_row_width(x)
    check_vector("weight", weight, width)
    check_vector("bias", bias, width)
    if linear_bias is not None:
        check_vector("linear_bias", linear_bias, width)
    if residual is not None:
        check_matrix("residual", residual, like=x)
    out = torch.empty_like(x)
    launch = row_launch(len(x), width)
    pdl = use_pdl(x, pdl)
    _layer_norm_kernel[launch.grid(len(x))](
        x,
        weight if linear_bias is None else linear_bias,
        x if residual is None else residual,
        weight,
        bias,
        out,
        len(x),
        eps,
        D=width,
        BLOCK=launch.block,
        ROWS=launch.rows,
        LINEAR_BIAS=linear_bias is not None,
        RESIDUAL=residual is not None,
        PDL=pdl,
        num_warps=launch.num_warps,
        launch_pdl=pdl,
    )
    return out


def bytes_moved(num_rows: int, width: int, *, itemsize: int = 2, residual: bool = False) -> int:
    """Bytes of device memory a call has to read and write."""
    return (3 if residual else 2) * num_rows * width * itemsize
