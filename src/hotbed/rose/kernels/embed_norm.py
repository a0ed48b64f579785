# mypy: ignore-errors
# ruff: noqa: PLR0917  (a kernel's pointers go by position)
"""BERT's embedding in one pass.

    y = LayerNorm(word[id] + position[p])               (Devlin et al. 2018, arXiv 1810.04805)

The segment's row is part of the position table. Bytes moved: 3 T D elements (two gathers, one
write) and 8 T of indices; repeated ids and positions come from the cache.
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
from hotbed.rose.kernels.layer_norm import normalize_rows


def reference(
    token_ids: Tensor,
    positions: Tensor,
    word: Tensor,
    position: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    eps: float,
) -> Tensor:
    """y [T, D] in fp32."""
    v = word[token_ids].float() + position[positions].float()
    return F.layer_norm(v, v.shape[-1:], weight.float(), bias.float(), eps)


@triton.jit(do_not_specialize=["num_rows"])
def _embed_norm_kernel(
    token_ids_ptr,
    positions_ptr,
    word_ptr,
    position_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    num_rows,
    eps,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    PDL: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    in_row = cols < D
    weight = tl.load(weight_ptr + cols, mask=in_row, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + cols, mask=in_row, other=0.0).to(tl.float32)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    in_step = rows < num_rows
    token_ids = tl.load(token_ids_ptr + rows, mask=in_step, other=0).to(tl.int64)
    positions = tl.load(positions_ptr + rows, mask=in_step, other=0).to(tl.int64)
    mask = in_step[:, None] & in_row[None, :]
    v = tl.load(word_ptr + token_ids[:, None] * D + cols[None, :], mask=mask, other=0.0)
    p = tl.load(position_ptr + positions[:, None] * D + cols[None, :], mask=mask, other=0.0)
    y = normalize_rows(v.to(tl.float32) + p.to(tl.float32), in_row, weight, bias, eps, D)
    tl.store(out_ptr + rows.to(tl.int64)[:, None] * D + cols[None, :], y, mask=mask)


def embed_norm(
    token_ids: Tensor,
    positions: Tensor,
    word: Tensor,
    position: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    eps: float,
    fixed: bool = False,
    pdl: bool | None = None,
) -> Tensor:
    """int32 ids and positions [T] to normalised embeddings [T, D] of word's dtype.

    Args:
        token_ids: below the rows of `word`; not checked here.
        positions: below the rows of `position`; not checked here.
        word: [vocabulary, D].
        position: [positions, D].
        weight: of the norm, [D].
        bias: of the norm, [D].
        eps: of the norm.
        fixed: a row's bits then do not depend on how many rows there are.
        pdl: None takes the device's default.
    """
    check_matrix("word", word)
    check_matrix("position", position)
    width = check_row_width(word)
    if position.shape[1] != width:
        raise ValueError(f"position has rows of {position.shape[1]}, word of {width}")
    check_vector("token_ids", token_ids, len(token_ids), torch.int32)
    check_vector("positions", positions, len(token_ids), torch.int32)
    check_vector("weight", weight, width)
    check_vector("bias", bias, width)
    num_rows = len(token_ids)
    out = word.new_empty(num_rows, width)
    launch = row_launch(num_rows, width, fixed=fixed)
    pdl = use_pdl(word, pdl)
    _embed_norm_kernel[launch.grid(num_rows)](
        token_ids,
        positions,
        word,
        position,
        weight,
        bias,
        out,
        num_rows,
        eps,
        D=width,
        BLOCK=launch.block,
        ROWS=launch.rows,
        PDL=pdl,
        num_warps=launch.num_warps,
        launch_pdl=pdl,
    )
    return out


def bytes_moved(num_rows: int, width: int, *, itemsize: int = 2) -> int:
    """Bytes of device memory a call has to read and write, with no index repeated."""
    return num_rows * (3 * width * itemsize + 8)
