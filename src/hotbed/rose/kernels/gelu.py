# mypy: ignore-errors
# ruff: noqa: PLR0917  (a kernel's pointers go by position)
"""Bias and exact GELU in one pass, in place.

    y = v (1 + erf(v / sqrt 2)) / 2,  v = x + b        (Hendrycks and Gimpel 2016, arXiv 1606.08415)

cuBLAS has only the tanh approximation in its epilogue, which is off by up to 5e-4: eight times the
rounding of BF16 where GELU is small and negative. Bytes moved: 2 T F elements.
"""

from __future__ import annotations

import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from hotbed.rose.kernels.launch import WIDTH_MULTIPLE, check_matrix, check_vector, use_pdl

# Two 16-byte loads of BF16 a thread with 4 warps.
_BLOCK = 2048
_NUM_WARPS = 4


def reference(x: Tensor, bias: Tensor | None) -> Tensor:
    """y [T, F] in fp32."""
    return F.gelu(x.float() if bias is None else x.float() + bias.float())


@triton.jit
def _bias_gelu_kernel(
    x_ptr,
    bias_ptr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    BIAS: tl.constexpr,
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
    y = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    tl.store(x_ptr + row * WIDTH + cols, y, mask=mask)


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
        PDL=pdl,
        num_warps=_NUM_WARPS,
        launch_pdl=pdl,
    )
    return x


def bytes_moved(num_rows: int, width: int, *, itemsize: int = 2) -> int:
    """Bytes of device memory a call has to read and write."""
    return 2 * num_rows * width * itemsize
