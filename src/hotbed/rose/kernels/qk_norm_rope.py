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

import functools
import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from hotbed.core.errors import invalid
from hotbed.rose.kernels.launch import check_matrix, check_vector, use_pdl

MAX_HEAD_DIM = 256

# A program takes a few tokens and goes over up to this many of their heads: cos, sin and weights
# are loaded once for all of them and stay in registers. At 8 values a thread of each half, one
# 16-byte access of BF16, a warp takes 4 tokens of head dim 128.
_MAX_HEADS = 8
_VALUES_PER_WARP = 256
# Of few tokens over fewer heads, so that there are programs for all multiprocessors. us behind the
# 0.6B shape's QKV product with 8, 4, 2 and 1 heads a program, H200, 2026-12-01: 4.5, 3.0, 2.6, 4.4
# at 512 tokens, 5.0, 3.9, 4.6, 8.2 at 1,024, 13.5, 14.1, 17.0, 31.5 at 4,096.
_MIN_HEADS = 2
_ENOUGH_PROGRAMS = 1536


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


@triton.jit(do_not_specialize=["num_rows"])
def _qk_norm_rope_kernel(
    qkv_ptr,
    positions_ptr,
    cos_ptr,
    sin_ptr,
    q_weight_ptr,
    k_weight_ptr,
    num_rows,
    eps,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEADS: tl.constexpr,
    TOKENS: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    NORM: tl.constexpr,
    PDL: tl.constexpr,
):
    HALF: tl.constexpr = HEAD_DIM // 2
    GROUPS: tl.constexpr = (NUM_HEADS + NUM_KV_HEADS) // HEADS
    first_head = (tl.program_id(0) % GROUPS) * HEADS
    rows = (tl.program_id(0) // GROUPS) * TOKENS + tl.arange(0, TOKENS)
    # In the layout of the tokens' values, so that nothing is exchanged between threads; rows of a
    # program lie in the cache after the first.
    dims = tl.zeros([TOKENS, 1], tl.int32) + tl.arange(0, HALF_BLOCK)[None, :]
    in_half = dims < HALF
    if NORM:
        # HEADS divides both numbers of heads, so a program has heads of one kind.
        if first_head < NUM_HEADS:
            first_weight = tl.load(q_weight_ptr + dims, mask=in_half, other=0.0)
            second_weight = tl.load(q_weight_ptr + HALF + dims, mask=in_half, other=0.0)
        else:
            first_weight = tl.load(k_weight_ptr + dims, mask=in_half, other=0.0)
            second_weight = tl.load(k_weight_ptr + HALF + dims, mask=in_half, other=0.0)
        first_weight = first_weight.to(tl.float32)
        second_weight = second_weight.to(tl.float32)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    in_step = rows < num_rows
    mask = in_step[:, None] & in_half
    table_rows = tl.load(positions_ptr + rows, mask=in_step, other=0).to(tl.int64) * HALF
    cos = tl.load(cos_ptr + table_rows[:, None] + dims, mask=mask, other=0.0)
    sin = tl.load(sin_ptr + table_rows[:, None] + dims, mask=mask, other=0.0)
    offsets = rows.to(tl.int64)[:, None] * ((NUM_HEADS + 2 * NUM_KV_HEADS) * HEAD_DIM) + dims
    first_ptrs = qkv_ptr + first_head * HEAD_DIM + offsets
    next_first = tl.load(first_ptrs, mask=mask, other=0.0)
    next_second = tl.load(first_ptrs + HALF, mask=mask, other=0.0)
    for head in tl.static_range(HEADS):
        ptrs = first_ptrs + head * HEAD_DIM
        first, second = next_first.to(tl.float32), next_second.to(tl.float32)
        # Before the stores, behind which the compiler may not move a load.
        if head + 1 < HEADS:
            next_first = tl.load(ptrs + HEAD_DIM, mask=mask, other=0.0)
            next_second = tl.load(ptrs + HEAD_DIM + HALF, mask=mask, other=0.0)
        if NORM:
            squares = tl.sum(first * first + second * second, axis=1)
            scale = tl.rsqrt(squares / HEAD_DIM + eps)[:, None]
            first = first * scale * first_weight
            second = second * scale * second_weight
        tl.store(ptrs, first * cos - second * sin, mask=mask)
        tl.store(ptrs + HALF, second * cos + first * sin, mask=mask)


@functools.lru_cache(maxsize=1024)
def _heads(num_heads: int, num_kv_heads: int, programs_a_head: int) -> int:
    """Heads a program goes over: the most that divide both numbers and leave enough programs."""
    both = math.gcd(num_heads, num_kv_heads)
    most = programs_a_head * (num_heads + num_kv_heads) // _ENOUGH_PROGRAMS
    most = min(max(most, _MIN_HEADS), _MAX_HEADS)
    return max(n for n in range(1, most + 1) if both % n == 0)


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
    tokens = max(1, _VALUES_PER_WARP // half_block)
    rows_of_programs = triton.cdiv(len(qkv), tokens)
    heads = _heads(num_heads, num_kv_heads, rows_of_programs)
    groups = (num_heads + num_kv_heads) // heads
    pdl = use_pdl(qkv, pdl)
    _qk_norm_rope_kernel[(rows_of_programs * groups,)](
        qkv,
        positions,
        cos,
        sin,
        q_weight if norm else cos,
        k_weight if norm else cos,
        len(qkv),
        eps,
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        HEADS=heads,
        TOKENS=tokens,
        HALF_BLOCK=half_block,
        NORM=norm,
        PDL=pdl,
        num_warps=1,
        launch_pdl=pdl,
    )
    return qkv


def bytes_moved(
    num_rows: int, num_heads: int, num_kv_heads: int, head_dim: int, *, itemsize: int = 2
) -> int:
    """Bytes of device memory a call has to read and write."""
    return num_rows * head_dim * (2 * (num_heads + num_kv_heads) * itemsize + 4)
