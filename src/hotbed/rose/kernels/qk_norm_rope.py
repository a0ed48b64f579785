# mypy: ignore-errors
# ruff: noqa: PLR0917  (a kernel's pointers go by position)
"""Per-head RMSNorm of q and k, then rotary, in place on the packed QKV projection.

    n = x / sqrt(mean(x^2) + eps) * w over each head    (Qwen3, arXiv 2505.09388)
    y[i]       = n[i] cos a - n[i + H/2] sin a          (Su et al. 2021, arXiv 2104.09864;
    y[i + H/2] = n[i + H/2] cos a + n[i] sin a           half-split layout of GPT-NeoX)

The norm may be left out. v is not touched. Bytes moved: 2 T (N + K) H elements of q and k, and the
table rows, 4 T H of fp32 (once: a token's programs run side by side).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from hotbed.core.errors import invalid
from hotbed.rose.kernels.launch import check_matrix, check_vector, use_pdl

MAX_HEAD_DIM = 256

# A program takes one token and this many values of each half of its heads: 8 heads of 128, as in
# the probe that ran 1 x 128 tokens in 1.03 ms (H200, 2026-11-30). At 8 values a thread, one 16-byte
# access of BF16 a half, that is 2 warps.
_HALF_VALUES = 512
_VALUES_PER_WARP = 256


def reference(
    qkv: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    num_heads: int,
    num_kv_heads: int,
    q_weight: Tensor | None = None,
    k_weight: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    """The whole packed QKV [T, (N + 2 K) H] in fp32."""
    heads = qkv.float().view(len(qkv), num_heads + 2 * num_kv_heads, -1)
    q, k, v = heads.split((num_heads, num_kv_heads, num_kv_heads), dim=1)
    c, s = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)

    def rotated(x: Tensor, weight: Tensor | None) -> Tensor:
        if weight is not None:
            x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.float()
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * c - second * s, second * c + first * s), dim=-1)

    return torch.cat((rotated(q, q_weight), rotated(k, k_weight), v), dim=1).flatten(1)


@triton.jit
def _qk_norm_rope_kernel(
    qkv_ptr,
    positions_ptr,
    cos_ptr,
    sin_ptr,
    q_weight_ptr,
    k_weight_ptr,
    eps,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEADS: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    NORM: tl.constexpr,
    PDL: tl.constexpr,
):
    HALF: tl.constexpr = HEAD_DIM // 2
    GROUPS: tl.constexpr = (NUM_HEADS + NUM_KV_HEADS + HEADS - 1) // HEADS
    token = (tl.program_id(0) // GROUPS).to(tl.int64)
    heads = (tl.program_id(0) % GROUPS) * HEADS + tl.arange(0, HEADS)
    # Weights and table rows are loaded once a head, in the layout of the heads: from the cache, and
    # without the exchange through shared memory that a broadcast of one row would take.
    dims = tl.zeros([HEADS, 1], tl.int32) + tl.arange(0, HALF_BLOCK)[None, :]
    in_half = dims < HALF
    if NORM:
        is_q = (heads < NUM_HEADS)[:, None]
        q_first = tl.load(q_weight_ptr + dims, mask=in_half, other=0.0)
        k_first = tl.load(k_weight_ptr + dims, mask=in_half, other=0.0)
        q_second = tl.load(q_weight_ptr + HALF + dims, mask=in_half, other=0.0)
        k_second = tl.load(k_weight_ptr + HALF + dims, mask=in_half, other=0.0)
        first_weight = tl.where(is_q, q_first, k_first).to(tl.float32)
        second_weight = tl.where(is_q, q_second, k_second).to(tl.float32)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    mask = (heads < NUM_HEADS + NUM_KV_HEADS)[:, None] & in_half
    row_ptr = qkv_ptr + token * ((NUM_HEADS + 2 * NUM_KV_HEADS) * HEAD_DIM)
    offsets = heads[:, None] * HEAD_DIM + dims
    table_row = tl.load(positions_ptr + token).to(tl.int64) * HALF
    first = tl.load(row_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(row_ptr + HALF + offsets, mask=mask, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + table_row + dims, mask=in_half, other=0.0)
    sin = tl.load(sin_ptr + table_row + dims, mask=in_half, other=0.0)
    if NORM:
        squares = tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1)
        scale = tl.rsqrt(squares / HEAD_DIM + eps)[:, None]
        first = first * scale * first_weight
        second = second * scale * second_weight
    tl.store(row_ptr + offsets, first * cos - second * sin, mask=mask)
    tl.store(row_ptr + HALF + offsets, second * cos + first * sin, mask=mask)


def check_head_dim(head_dim: int) -> None:
    """For layers, when a model is loaded.

    Raises:
        HotbedError: INVALID_INPUT if the kernel does not take heads of this size.
    """
    if head_dim % 16 or not 0 < head_dim <= MAX_HEAD_DIM:
        raise invalid(
            f"head_dim of {head_dim}: on a GPU it must be a multiple of 16 up to {MAX_HEAD_DIM}"
        )


def qk_norm_rope_(
    qkv: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    num_heads: int,
    num_kv_heads: int,
    q_weight: Tensor | None = None,
    k_weight: Tensor | None = None,
    eps: float = 0.0,
    pdl: bool | None = None,
) -> Tensor:
    """Norm and rotate q and k in place; returns `qkv`.

    Args:
        qkv: [T, (N + 2 K) H], heads of q, k, v in this order.
        positions: int32 [T], below the rows of the tables; not checked here.
        cos: fp32 [positions, H/2], and so is `sin`.
        sin: see `cos`.
        num_heads: N.
        num_kv_heads: K.
        q_weight: [H], or None for no norm; both or neither.
        k_weight: [H].
        eps: of the norm.
        pdl: None takes the device's default.
    """
    check_matrix("qkv", qkv)
    head_dim, rest = divmod(qkv.shape[1], num_heads + 2 * num_kv_heads)
    if rest or head_dim % 16 or head_dim > MAX_HEAD_DIM:
        raise ValueError(
            f"qkv has rows of {qkv.shape[1]}: not {num_heads} + 2 * {num_kv_heads} heads of a "
            f"multiple of 16 up to {MAX_HEAD_DIM}"
        )
    check_vector("positions", positions, len(qkv), torch.int32)
    check_matrix("cos", cos)
    check_matrix("sin", sin, like=cos)
    if cos.shape[1] != head_dim // 2 or cos.dtype != torch.float32:
        raise ValueError(f"cos must be float32 with rows of {head_dim // 2}")
    norm = q_weight is not None
    if norm != (k_weight is not None):
        raise ValueError("q_weight and k_weight must be given together")
    if norm:
        check_vector("q_weight", q_weight, head_dim)
        check_vector("k_weight", k_weight, head_dim)
    half_block = triton.next_power_of_2(head_dim // 2)
    heads = min(
        triton.next_power_of_2(num_heads + num_kv_heads), max(1, _HALF_VALUES // half_block)
    )
    groups = triton.cdiv(num_heads + num_kv_heads, heads)
    pdl = use_pdl(qkv, pdl)
    _qk_norm_rope_kernel[(len(qkv) * groups,)](
        qkv,
        positions,
        cos,
        sin,
        q_weight if norm else cos,
        k_weight if norm else cos,
        eps,
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        HEADS=heads,
        HALF_BLOCK=half_block,
        NORM=norm,
        PDL=pdl,
        num_warps=max(1, heads * half_block // _VALUES_PER_WARP),
        launch_pdl=pdl,
    )
    return qkv


def bytes_moved(
    num_rows: int, num_heads: int, num_kv_heads: int, head_dim: int, *, itemsize: int = 2
) -> int:
    """Bytes of device memory a call has to read and write."""
    return num_rows * head_dim * (2 * (num_heads + num_kv_heads) * itemsize + 4)
