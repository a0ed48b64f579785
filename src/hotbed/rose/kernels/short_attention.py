# mypy: ignore-errors
# ruff: noqa: PLR0917, PLR0915  (a kernel's pointers go by position; it is one piece)
"""Attention of steps of a few hundred tokens, straight from the packed QKV projection.

    softmax(Q K^T * scale) V within each sequence               (Vaswani et al. 2017, 1706.03762;
    online softmax over tiles of keys                            Dao et al. 2022, 2205.14135)

At this size attention is latency, not arithmetic: a block finds its sequence from the offsets
before it waits for the kernel in front (they are the step's inputs, not that kernel's output), and
PDL lets the next kernel's weights come in meanwhile. Bytes moved: the QKV rows and the result, both
in the L2 cache.
"""

from __future__ import annotations

import itertools

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from hotbed.rose.kernels.launch import check_matrix, check_vector, use_pdl

MAX_SLOTS = 1024
# Most keys a round: 128 leave a round of scores in registers.
_KEYS = 128


def reference(
    qkv: Tensor,
    cu_seqlens: Tensor,
    *,
    num_heads: int,
    num_kv_heads: int,
    scale: float,
    causal: bool = False,
) -> Tensor:
    """[T, N H] in fp32."""
    heads = qkv.float().view(len(qkv), num_heads + 2 * num_kv_heads, -1)
    q, k, v = heads.split((num_heads, num_kv_heads, num_kv_heads), dim=1)
    group = num_heads // num_kv_heads
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    out = torch.zeros_like(q)
    offsets = cu_seqlens.tolist()
    for start, stop in itertools.pairwise(offsets):
        scores = torch.einsum("qnh,knh->nqk", q[start:stop], k[start:stop]) * scale
        if causal:
            above = torch.ones(stop - start, stop - start, dtype=torch.bool, device=qkv.device)
            scores = scores.masked_fill(above.triu(1), -torch.inf)
        out[start:stop] = torch.einsum("nqk,knh->qnh", scores.softmax(-1), v[start:stop])
    return out.flatten(1)


@triton.jit
def _short_attention_kernel(
    qkv_ptr,
    cu_seqlens_ptr,
    out_ptr,
    num_slots,
    scale,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    SLOTS: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    CAUSAL: tl.constexpr,
    PDL: tl.constexpr,
):
    tile = tl.program_id(0)
    head = tl.program_id(1)
    slots = tl.arange(0, SLOTS)
    in_slots = slots < num_slots
    starts = tl.load(cu_seqlens_ptr + slots, mask=in_slots, other=0)
    stops = tl.load(cu_seqlens_ptr + slots + 1, mask=in_slots, other=0)
    tiles = (stops - starts + QUERIES - 1) // QUERIES
    tiles_up_to = tl.cumsum(tiles, axis=0)
    slot = tl.sum((tiles_up_to <= tile).to(tl.int32), axis=0)
    is_mine = slots == slot
    start = tl.sum(tl.where(is_mine, starts, 0), axis=0)
    length = tl.sum(tl.where(is_mine, stops - starts, 0), axis=0)
    first = (tile - tl.sum(tl.where(is_mine, tiles_up_to - tiles, 0), axis=0)) * QUERIES
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    # A tile past the last one finds no slot, so its length is 0.
    if length > 0:
        ROW: tl.constexpr = (NUM_HEADS + 2 * NUM_KV_HEADS) * HEAD_DIM
        kv_head = head // (NUM_HEADS // NUM_KV_HEADS)
        dims = tl.arange(0, HEAD_DIM)
        queries = first + tl.arange(0, QUERIES)
        rows = (start + queries).to(tl.int64)[:, None]
        q_mask = (queries < length)[:, None]
        q = tl.load(qkv_ptr + rows * ROW + head * HEAD_DIM + dims[None, :], mask=q_mask, other=0.0)
        k_ptr = qkv_ptr + (NUM_HEADS + kv_head) * HEAD_DIM
        v_ptr = k_ptr + NUM_KV_HEADS * HEAD_DIM
        largest = tl.full([QUERIES], float("-inf"), tl.float32)
        total = tl.zeros([QUERIES], tl.float32)
        acc = tl.zeros([QUERIES, HEAD_DIM], tl.float32)
        scale_log2 = scale * 1.4426950408889634
        stop = tl.minimum(length, first + QUERIES) if CAUSAL else length
        block = tl.zeros([], tl.int32)
        while block < stop:  # range() takes no bound from a reduction in the interpreter
            keys = block + tl.arange(0, KEYS)
            key_rows = (start + keys).to(tl.int64)
            in_keys = keys < length
            k = tl.load(
                k_ptr + key_rows[None, :] * ROW + dims[:, None], mask=in_keys[None, :], other=0.0
            )
            # Both on their way before the first is used.
            v = tl.load(
                v_ptr + key_rows[:, None] * ROW + dims[None, :], mask=in_keys[:, None], other=0.0
            )
            scores = tl.dot(q, k) * scale_log2
            seen = in_keys[None, :]
            if CAUSAL:
                seen = seen & (keys[None, :] <= queries[:, None])
            scores = tl.where(seen, scores, float("-inf"))
            new_largest = tl.maximum(largest, tl.max(scores, axis=1))
            weights = tl.exp2(scores - new_largest[:, None])
            rescale = tl.exp2(largest - new_largest)
            total = total * rescale + tl.sum(weights, axis=1)
            acc = tl.dot(weights.to(v.dtype), v, acc * rescale[:, None])
            largest = new_largest
            block += KEYS
        tl.store(
            out_ptr + rows * (NUM_HEADS * HEAD_DIM) + head * HEAD_DIM + dims[None, :],
            acc / total[:, None],
            mask=q_mask,
        )


def short_attention(
    qkv: Tensor,
    cu_seqlens: Tensor,
    *,
    num_heads: int,
    num_kv_heads: int,
    scale: float,
    causal: bool = False,
    pdl: bool | None = None,
) -> Tensor:
    """qkv [T, (N + 2 K) H] to a new [T, N H].

    Rows that no sequence holds are not written; a pad slot takes care of them.

    Args:
        qkv: heads of q, k, v in this order; H a power of two from 16 on.
        cu_seqlens: int32 [slots + 1]; at most 1,024 slots.
        num_heads: N.
        num_kv_heads: K, a divisor of N.
        scale: of the scores.
        causal: whether a token sees nothing to its right.
        pdl: None takes the device's default.
    """
    check_matrix("qkv", qkv)
    head_dim, rest = divmod(qkv.shape[1], num_heads + 2 * num_kv_heads)
    if rest or head_dim < 16 or head_dim & (head_dim - 1):
        raise ValueError(f"qkv has rows of {qkv.shape[1]}: heads must be a power of two from 16 on")
    num_slots = len(cu_seqlens) - 1
    check_vector("cu_seqlens", cu_seqlens, num_slots + 1, torch.int32)
    if not 0 < num_slots <= MAX_SLOTS:
        raise ValueError(f"{num_slots} slots: at most {MAX_SLOTS}")
    num_tokens = len(qkv)
    out = torch.empty(num_tokens, num_heads * head_dim, dtype=qkv.dtype, device=qkv.device)
    # 64 rows are what a wgmma takes; many short texts would leave most of them empty.
    queries = 64 if num_tokens >= 32 * num_slots else 16
    tiles = min(num_tokens, num_tokens // queries + num_slots)
    pdl = use_pdl(qkv, pdl)
    _short_attention_kernel[(tiles, num_heads)](
        qkv,
        cu_seqlens,
        out,
        num_slots,
        scale,
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        SLOTS=triton.next_power_of_2(num_slots),
        QUERIES=queries,
        KEYS=max(16, min(_KEYS, triton.next_power_of_2(num_tokens))),
        CAUSAL=causal,
        PDL=pdl,
        num_warps=4,
        num_stages=2,
        launch_pdl=pdl,
    )
    return out
