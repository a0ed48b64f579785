# mypy: ignore-errors
# ruff: noqa: PLR0917  (a kernel's pointers go by position)
"""SwiGLU of a fused gate and up projection, and its relatives with GELU.

    y = act(gate) * up,  x = [gate | up]                                  (Shazeer 2020, 2002.05202)
    silu(g) = g / (1 + exp(-g));  gelu(g) = g (1 + erf(g / sqrt 2)) / 2
    gelu_tanh(g) = g (1 + tanh(u)) / 2 = g sigmoid(2 u),  u = sqrt(2 / pi) (g + 0.044715 g^3)

Bytes moved: 3 T F elements.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from hotbed.rose.kernels.launch import WIDTH_MULTIPLE, check_matrix, use_pdl

Gate = Literal["silu", "gelu", "gelu_tanh"]

# Two 16-byte loads of BF16 a thread and one store, with 4 warps.
_BLOCK = 1024
_NUM_WARPS = 4


def reference(x: Tensor, activation: Gate = "silu") -> Tensor:
    """y [T, F] in fp32."""
    gate, up = x.float().chunk(2, dim=-1)
    if activation == "silu":
        return F.silu(gate) * up
    return F.gelu(gate, approximate="tanh" if activation == "gelu_tanh" else "none") * up


@triton.jit
def _swiglu_kernel(
    x_ptr,
    out_ptr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PDL: tl.constexpr,
):
    BLOCKS: tl.constexpr = (WIDTH + BLOCK - 1) // BLOCK
    row = (tl.program_id(0) // BLOCKS).to(tl.int64)
    cols = (tl.program_id(0) % BLOCKS) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < WIDTH
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    gate = tl.load(x_ptr + row * 2 * WIDTH + cols, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * 2 * WIDTH + WIDTH + cols, mask=mask, other=0.0).to(tl.float32)
    if ACTIVATION == "silu":
        gate *= tl.sigmoid(gate)
    elif ACTIVATION == "gelu":
        gate *= 0.5 * (1.0 + tl.erf(gate * 0.7071067811865476))
    else:
        cubed = gate * gate * gate
        gate *= tl.sigmoid(1.5957691216057308 * (gate + 0.044715 * cubed))
    tl.store(out_ptr + row * WIDTH + cols, gate * up, mask=mask)


def swiglu(x: Tensor, activation: Gate = "silu", *, pdl: bool | None = None) -> Tensor:
    """x [T, 2 F], gate before up in each row, to a new [T, F]; F a multiple of 8."""
    check_matrix("x", x)
    if activation not in ("silu", "gelu", "gelu_tanh"):
        raise ValueError(f"activation {activation!r} is unknown")
    if x.shape[1] % (2 * WIDTH_MULTIPLE):
        raise ValueError(f"rows of {x.shape[1]}: not two halves of a multiple of {WIDTH_MULTIPLE}")
    width = x.shape[1] // 2
    out = torch.empty(len(x), width, dtype=x.dtype, device=x.device)
    pdl = use_pdl(x, pdl)
    _swiglu_kernel[(len(x) * triton.cdiv(width, _BLOCK),)](
        x,
        out,
        WIDTH=width,
        BLOCK=_BLOCK,
        ACTIVATION=activation,
        PDL=pdl,
        num_warps=_NUM_WARPS,
        launch_pdl=pdl,
    )
    return out


def bytes_moved(num_rows: int, width: int, *, itemsize: int = 2) -> int:
    """Bytes of device memory a call has to read and write; `width` is F."""
    return 3 * num_rows * width * itemsize
