# mypy: ignore-errors
# ruff: noqa: PLR0917  (a kernel's pointers go by position)
"""RMSNorm over rows, alone or behind a residual addition.

    y = x / sqrt(mean(x^2) + eps) * w                    (Zhang and Sennrich 2019, arXiv 1910.07467)
    r = x + residual;  y = RMSNorm(r)                    the sum is normalised before it is rounded

y is of x's dtype or, for a linear layer that reads it so, FP8 with a scale for each row (`fp8`).
Bytes moved: 2 T D elements; with the addition 4 T D.
"""

from __future__ import annotations

import torch
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


def reference(x: Tensor, weight: Tensor, *, eps: float, residual: Tensor | None = None) -> Tensor:
    """y [T, D] in fp32."""
    r = x.float() if residual is None else x.float() + residual.float()
    return r * torch.rsqrt(r.square().mean(-1, keepdim=True) + eps) * weight.float()


@triton.jit(do_not_specialize=["num_rows"])
def _rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    scales_ptr,
    num_rows,
    eps,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    ADD: tl.constexpr,
    FP8: tl.constexpr,
    APPROX: tl.constexpr,
    PDL: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    weight = tl.load(weight_ptr + cols, mask=cols < D, other=0.0).to(tl.float32)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    offsets = rows.to(tl.int64)[:, None] * D + cols[None, :]
    mask = (rows < num_rows)[:, None] & (cols < D)[None, :]
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    if ADD:
        x += tl.load(residual_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        tl.store(residual_ptr + offsets, x, mask=mask)
    scale = tl.rsqrt(tl.sum(x * x, axis=1) / D + eps)
    y = x * scale[:, None] * weight[None, :]
    if FP8:
        y, scales = quantized(y, APPROX)
        tl.store(scales_ptr + rows, scales, mask=rows < num_rows)
    tl.store(out_ptr + offsets, y, mask=mask)


def rms_norm(
    x: Tensor, weight: Tensor, *, eps: float, fixed: bool = False, pdl: bool | None = None
) -> Tensor:
    """RMSNorm of x [T, D] with weight [D]: a new [T, D] of x's dtype.

    With `fixed` a row's bits do not depend on how many rows there are.
    """
    out = torch.empty_like(x)
    _launch(x, None, weight, eps, fixed, pdl, out, None)
    return out


def rms_norm_fp8(
    x: Tensor, weight: Tensor, *, eps: float, fixed: bool = False, pdl: bool | None = None
) -> Fp8Rows:
    """The same in FP8; y is not rounded to x's dtype before."""
    out = empty_rows(*x.shape, x.device)
    _launch(x, None, weight, eps, fixed, pdl, out.values, out.scales)
    return out


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, *, eps: float, pdl: bool | None = None
) -> Tensor:
    """RMSNorm of x + residual, both [T, D]; the sum is written over `residual`."""
    check_matrix("residual", residual, like=x)
    out = torch.empty_like(x)
    _launch(x, residual, weight, eps, False, pdl, out, None)
    return out


def _launch(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    eps: float,
    fixed: bool,
    pdl: bool | None,
    out: Tensor,
    scales: Tensor | None,
) -> None:
    check_matrix("x", x)
    width = check_row_width(x)
    check_vector("weight", weight, width)
    launch = row_launch(len(x), width, fixed=fixed)
    pdl = use_pdl(x, pdl)
    _rms_norm_kernel[launch.grid(len(x))](
        x,
        x if residual is None else residual,
        weight,
        out,
        out if scales is None else scales,
        len(x),
        eps,
        D=width,
        BLOCK=launch.block,
        ROWS=launch.rows,
        ADD=residual is not None,
        FP8=scales is not None,
        APPROX=COMPILED,
        PDL=pdl,
        num_warps=launch.num_warps,
        launch_pdl=pdl,
    )


def bytes_moved(num_rows: int, width: int, *, itemsize: int = 2, add: bool = False) -> int:
    """Bytes of device memory a call has to read and write."""
    return (4 if add else 2) * num_rows * width * itemsize
