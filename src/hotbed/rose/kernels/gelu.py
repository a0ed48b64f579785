# mypy: ignore-errors
# ruff: noqa: PLR0917  (a kernel's pointers go by position)
"""Bias and exact GELU in one pass, in place.

    y = v (1 + erf(v / sqrt 2)) / 2,  v = x + b        (Hendrycks and Gimpel 2016, arXiv 1606.08415)

cuBLAS has only the tanh approximation in its epilogue, which is off by up to 5e-4: eight times the
rounding of BF16 where GELU is small and negative.

The library's erf costs more arithmetic than the memory leaves time for (52 us for 8,192 x 4,096 on
an H200, 2026-11-30, where moving the bytes takes 31), and 1 + erf(.) loses all digits of the tail.
So the tail itself is computed, in the form of Abramowitz and Stegun, 7.1.26:

    y = max(v, 0) - |v| q,  q = Phi(-|v|) = P(t) exp(-v^2 / 2),  t = 1 / (1 + 0.31 |v|)

with P of degree 6 fitted here to the least relative error: y is off by at most 1e-6, and by 1e-5 of
itself however small it is. Bytes moved: 2 T F elements.
"""

from __future__ import annotations

import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from hotbed.rose.kernels.approx import COMPILED, power_of_two, reciprocal
from hotbed.rose.kernels.launch import WIDTH_MULTIPLE, check_matrix, check_vector, use_pdl

# Two 16-byte loads of BF16 a thread with 4 warps.
_BLOCK = 2048
_NUM_WARPS = 4


def reference(x: Tensor, bias: Tensor | None) -> Tensor:
    """y [T, F] in fp32."""
    return F.gelu(x.float() if bias is None else x.float() + bias.float())


@triton.jit
def exact_gelu(v, APPROX: tl.constexpr):
    """gelu of fp32 v, as the formula above has it."""
    a = tl.abs(v)
    t = reciprocal(1.0 + 0.31 * a, APPROX)
    p = -0.07393577878582339
    p = p * t + 0.18046871369825668
    p = p * t + 0.01572572181811093
    p = p * t + 0.13343880960764207
    p = p * t + 0.12043934670484013
    p = p * t + 0.12386084551921313
    # -log2(e) / 2
    tail = p * t * power_of_two(v * v * -0.7213475204444817, APPROX)
    return tl.maximum(v, 0.0) - a * tail


@triton.jit
def _bias_gelu_kernel(
    x_ptr,
    bias_ptr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    BIAS: tl.constexpr,
    APPROX: tl.constexpr,
    PDL: tl.constexpr,
):
    BLOCKS: tl.constexpr = (WIDTH + BLOCK - 1) // BLOCK
    row = (tl.program_id(0) // BLOCKS).to(tl.int64)
    cols = (tl.program_id(0) % BLOCKS) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < WIDTH
    if BIAS:
        bias = tl.load(bias_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    v = tl.load(x_ptr + row * WIDTH + cols, mask=mask, other=0.0).to(tl.float32)
    if BIAS:
        v += bias
    tl.store(x_ptr + row * WIDTH + cols, exact_gelu(v, APPROX), mask=mask)


def bias_gelu_(x: Tensor, bias: Tensor | None, *, pdl: bool | None = None) -> Tensor:
    """Write gelu(x + bias) over x [T, F] and return x; `bias` [F] or None; F a multiple of 8."""
    check_matrix("x", x)
    width = x.shape[1]
    if width % WIDTH_MULTIPLE:
        raise ValueError(f"rows of {width}: not a multiple of {WIDTH_MULTIPLE}")
    if bias is not None:
        check_vector("bias", bias, width)
    pdl = use_pdl(x, pdl)
    _bias_gelu_kernel[(len(x) * triton.cdiv(width, _BLOCK),)](
        x,
        x if bias is None else bias,
        WIDTH=width,
        BLOCK=_BLOCK,
        BIAS=bias is not None,
        APPROX=COMPILED,
        PDL=pdl,
        num_warps=_NUM_WARPS,
        launch_pdl=pdl,
    )
    return x


def bytes_moved(num_rows: int, width: int, *, itemsize: int = 2) -> int:
    """Bytes of device memory a call has to read and write."""
    return 2 * num_rows * width * itemsize
