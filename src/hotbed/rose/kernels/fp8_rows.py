# mypy: ignore-errors
# ruff: noqa: PLR0917  (a kernel's pointers go by position)
"""Rows of BF16 to FP8 with a scale each, alone or behind an activation.

    v = x;  act(gate) * up, x = [gate | up];  gelu(x + b)       (see `swiglu` and `gelu`)
    scale = max|v| / 448;  y = e4m3(v / scale)                  (see `fp8`)

A program holds whole rows in registers, so that x is read once. v is not rounded to BF16 before its
scale is taken. Bytes moved: 3 T W; 5 T F behind a gate; and 4 T of scales.
"""

from __future__ import annotations

from typing import Literal

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from hotbed.rose.kernels import fp8, gelu, swiglu
from hotbed.rose.kernels.approx import COMPILED, quantized
from hotbed.rose.kernels.fp8 import Fp8Rows, empty_rows
from hotbed.rose.kernels.gelu import exact_gelu
from hotbed.rose.kernels.launch import (
    WIDTH_MULTIPLE,
    check_matrix,
    check_vector,
    row_launch,
    use_pdl,
)

MAX_WIDTH = 16_384
"""Widest row: 16 warps, 32 fp32 values a thread."""
Form = Literal["none", "bias_gelu", "silu", "gelu", "gelu_tanh"]
_GATED = ("silu", "gelu", "gelu_tanh")


def reference(x: Tensor, form: Form = "none", bias: Tensor | None = None) -> Fp8Rows:
    """The same in torch."""
    if form == "none":
        return fp8.quantize_rows(x)
    return fp8.quantize_rows(
        gelu.reference(x, bias) if form == "bias_gelu" else swiglu.reference(x, form)
    )


@triton.jit(do_not_specialize=["num_rows"])
def _fp8_rows_kernel(
    x_ptr,
    bias_ptr,
    out_ptr,
    scales_ptr,
    num_rows,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    FORM: tl.constexpr,
    GATED: tl.constexpr,
    BIAS: tl.constexpr,
    APPROX: tl.constexpr,
    PDL: tl.constexpr,
):
    STRIDE: tl.constexpr = 2 * WIDTH if GATED else WIDTH
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    in_row = cols < WIDTH
    if BIAS:
        bias = tl.load(bias_ptr + cols, mask=in_row, other=0.0).to(tl.float32)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    wide_rows = rows.to(tl.int64)[:, None]
    mask = (rows < num_rows)[:, None] & in_row[None, :]
    offsets = wide_rows * STRIDE + cols[None, :]
    v = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    if BIAS:
        v += bias[None, :]
    if GATED:
        up = tl.load(x_ptr + offsets + WIDTH, mask=mask, other=0.0).to(tl.float32)
        if FORM == "silu":
            v *= tl.sigmoid(v)
        elif FORM == "gelu":
            v *= 0.5 * (1.0 + tl.erf(v * 0.7071067811865476))
        else:
            v *= tl.sigmoid(1.5957691216057308 * (v + 0.044715 * v * v * v))
        v *= up
    if FORM == "bias_gelu":
        v = exact_gelu(v, APPROX)
    values, scales = quantized(v, APPROX)
    tl.store(out_ptr + wide_rows * WIDTH + cols[None, :], values, mask=mask)
    tl.store(scales_ptr + rows, scales, mask=rows < num_rows)


def fp8_rows(
    x: Tensor, form: Form = "none", bias: Tensor | None = None, *, pdl: bool | None = None
) -> Fp8Rows:
    """x [T, W], or [T, 2 F] gate before up, to FP8 [T, W] or [T, F].

    Args:
        x: contiguous; W or F a multiple of 8 up to 16,384.
        form: what comes before the rounding: nothing, exact GELU of x + bias, or act(gate) * up.
        bias: [W] for `bias_gelu`, or None.
        pdl: None takes the device's default.
    """
    check_matrix("x", x)
    if form not in ("none", "bias_gelu", *_GATED):
        raise ValueError(f"form {form!r} is unknown")
    width, rest = divmod(x.shape[1], 2 if form in _GATED else 1)
    if rest or width % WIDTH_MULTIPLE or width > MAX_WIDTH:
        raise ValueError(f"rows of {width}: not a multiple of {WIDTH_MULTIPLE} up to {MAX_WIDTH}")
    if bias is not None:
        check_vector("bias", bias, width)
        if form != "bias_gelu":
            raise ValueError(f"{form} takes no bias")
    out = empty_rows(len(x), width, x.device)
    launch = row_launch(len(x), width)
    pdl = use_pdl(x, pdl)
    _fp8_rows_kernel[launch.grid(len(x))](
        x,
        x if bias is None else bias,
        out.values,
        out.scales,
        len(x),
        WIDTH=width,
        BLOCK=launch.block,
        ROWS=launch.rows,
        FORM=form,
        GATED=form in _GATED,
        BIAS=bias is not None,
        APPROX=COMPILED,
        PDL=pdl,
        num_warps=max(launch.num_warps, min(16, launch.block // 1024)),
        launch_pdl=pdl,
    )
    return out


def bytes_moved(num_rows: int, width: int, *, gated: bool = False) -> int:
    """Bytes of device memory a call has to read and write; `width` is W or F."""
    return num_rows * (width * (5 if gated else 3) + 4)
