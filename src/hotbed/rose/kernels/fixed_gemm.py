# mypy: ignore-errors
# ruff: noqa: PLR0917  (a kernel's pointers go by position)
"""Linear layers and norms of rows whose bits do not depend on how many rows there are.

    y = x W^T [+ b] [+ y]         one tile, all of K by one program, in order
    y = x / max(|x|, 1e-12)       one program a row

cuBLAS and torch's reductions choose tiles, splits of K and threads a row by the number of rows, and
each choice adds up in another order. Sums are fp32; products of fp32 are not rounded to TF32. The
folder of kernels has GEMMs of one tile too (`gemm`), and faster: these are for machines without it,
and for the fp32 layers behind the pooling.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from hotbed.rose.kernels.approx import COMPILED
from hotbed.rose.kernels.launch import check_matrix, check_vector, use_pdl

# Rows, columns and depth of a tile, warps, stages; fp32 goes without tensor cores.
_TILES = {torch.bfloat16: (128, 128, 64, 8, 3), torch.float32: (16, 64, 32, 4, 2)}
# Tiles of as many rows of tiles are worked on side by side, so that they share W in the L2 cache.
_GROUP = 8
_NORM_EPS = 1e-12


def reference(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, added: Tensor | None = None
) -> Tensor:
    """y [T, N] in fp32."""
    y = x.float() @ weight.float().T
    for more in (bias, added):
        if more is not None:
            y = y + more.float()
    return y


@triton.jit(do_not_specialize=["num_rows"])
def _fixed_gemm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    num_rows,
    N: tl.constexpr,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    BIAS: tl.constexpr,
    ADD: tl.constexpr,
    APPROX: tl.constexpr,
    PDL: tl.constexpr,
):
    TILES_N: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    tiles_m = (num_rows + BLOCK_M - 1) // BLOCK_M
    group = tl.program_id(0) // (GROUP * TILES_N)
    rows_of_group = tl.minimum(tiles_m - group * GROUP, GROUP)
    within = tl.program_id(0) % (GROUP * TILES_N)
    rows = (group * GROUP + within % rows_of_group) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (within // rows_of_group) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    in_rows, in_cols = rows < num_rows, cols < N
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    x_ptrs = x_ptr + rows.to(tl.int64)[:, None] * K + depth[None, :]
    weight_ptrs = weight_ptr + cols.to(tl.int64)[None, :] * K + depth[:, None]
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for first in range(0, K, BLOCK_K):
        in_depth = depth < K - first
        x = tl.load(x_ptrs + first, mask=in_rows[:, None] & in_depth[None, :], other=0.0)
        w = tl.load(weight_ptrs + first, mask=in_cols[None, :] & in_depth[:, None], other=0.0)
        if not APPROX:  # the interpreter multiplies the bits of BF16 as integers
            x, w = x.to(tl.float32), w.to(tl.float32)
        sums = tl.dot(x, w, sums, input_precision="ieee")
    if BIAS:
        sums += tl.load(bias_ptr + cols, mask=in_cols, other=0.0).to(tl.float32)[None, :]
    mask = in_rows[:, None] & in_cols[None, :]
    out_ptrs = out_ptr + rows.to(tl.int64)[:, None] * N + cols[None, :]
    if ADD:
        sums += tl.load(out_ptrs, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptrs, sums, mask=mask)


def fixed_gemm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    added: Tensor | None = None,
    *,
    pdl: bool | None = None,
) -> Tensor:
    """x [T, K] times weight [N, K], + bias [N]: a new [T, N], or `added` [T, N] + that, in place.

    All of one dtype, BF16 or fp32, contiguous; any T, N and K.
    """
    check_matrix("x", x)
    check_matrix("weight", weight)
    (num_rows, depth), columns = x.shape, len(weight)
    if weight.shape[1] != depth or weight.dtype != x.dtype:
        raise ValueError(f"weight is {list(weight.shape)} {weight.dtype}, x has rows of {depth}")
    if bias is not None:
        check_vector("bias", bias, columns, x.dtype)
    out = x.new_empty(num_rows, columns)
    if added is not None:
        check_matrix("added", added, like=out)
        out = added
    block_m, block_n, block_k, num_warps, num_stages = _TILES[x.dtype]
    pdl = use_pdl(x, pdl)
    _fixed_gemm_kernel[(triton.cdiv(num_rows, block_m) * triton.cdiv(columns, block_n),)](
        x,
        weight,
        weight if bias is None else bias,
        out,
        num_rows,
        N=columns,
        K=depth,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        GROUP=_GROUP,
        BIAS=bias is not None,
        ADD=added is not None,
        APPROX=COMPILED,
        PDL=pdl,
        num_warps=num_warps,
        num_stages=num_stages,
        launch_pdl=pdl,
    )
    return out


@triton.jit
def _unit_rows_kernel(
    x_ptr, out_ptr, D: tl.constexpr, BLOCK: tl.constexpr, EPS: tl.constexpr, PDL: tl.constexpr
):
    cols = tl.arange(0, BLOCK)
    offsets = tl.program_id(0).to(tl.int64) * D + cols
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    x = tl.load(x_ptr + offsets, mask=cols < D, other=0.0)
    norm = tl.sqrt(tl.sum(x * x, axis=0))
    tl.store(out_ptr + offsets, x / tl.maximum(norm, EPS), mask=cols < D)


def unit_rows(x: Tensor, *, pdl: bool | None = None) -> Tensor:
    """fp32 x [S, D] divided by the L2 norms of its rows, as `torch.nn.functional.normalize` is."""
    check_matrix("x", x)
    if x.dtype != torch.float32:
        raise ValueError(f"x must be float32, not {x.dtype}")
    out = torch.empty_like(x)
    pdl = use_pdl(x, pdl)
    if len(x):
        _unit_rows_kernel[(len(x),)](
            x,
            out,
            D=x.shape[1],
            BLOCK=triton.next_power_of_2(x.shape[1]),
            EPS=_NORM_EPS,
            PDL=pdl,
            num_warps=4,
            launch_pdl=pdl,
        )
    return out


def bytes_moved(num_rows: int, columns: int, depth: int, *, itemsize: int = 2) -> int:
    """Bytes of device memory a product has to read and write at least."""
    return itemsize * (num_rows * (columns + depth) + columns * depth)
