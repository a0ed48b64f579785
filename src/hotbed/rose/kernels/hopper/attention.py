# mypy: ignore-errors
"""The launcher of attention.cu: attention of a step of few tokens from the packed QKV projection.

The same as `hotbed.rose.kernels.short_attention`, whose reference it shares, for heads of 64 and
128. Bytes moved: the QKV rows and the result, both in the L2 cache.
"""

from __future__ import annotations

import ctypes
import math
from pathlib import Path

import torch
from torch import Tensor

from hotbed.rose.kernels.hopper.nvrtc import compile_function, define

HEAD_DIMS = (64, 128)
MAX_SLOTS = 256
"""A thread looks for its block's sequence in each slot."""

_SOURCE = Path(__file__).with_name("attention.cu")
_THREADS, _ROWS, _KEYS = 256, 32, 128


def attention(
    qkv: Tensor,
    cu_seqlens: Tensor,
    *,
    num_heads: int,
    num_kv_heads: int,
    scale: float,
    causal: bool = False,
) -> Tensor:
    """qkv BF16 [T, (N + 2 K) H] to a new [T, N H].

    Rows that no sequence holds are not written; a pad slot takes care of them.

    Args:
        qkv: heads of q, k, v in this order, contiguous; H 64 or 128.
        cu_seqlens: int32 [slots + 1]; at most 256 slots.
        num_heads: N.
        num_kv_heads: K, a divisor of N.
        scale: of the scores.
        causal: whether a token sees nothing to its right.
    """
    num_tokens, width = qkv.shape
    head_dim, num_slots = width // (num_heads + 2 * num_kv_heads), len(cu_seqlens) - 1
    if head_dim not in HEAD_DIMS or not 0 < num_slots <= MAX_SLOTS:
        raise ValueError(f"heads of {head_dim}, {num_slots} slots: there is no kernel for them")
    prologue = define(HEAD_DIM=head_dim, HEADS=num_heads, KV_HEADS=num_kv_heads, CAUSAL=int(causal))
    copied = 2 * head_dim * (_ROWS + 2 * _KEYS)
    joined = 4 * (_THREADS // 2) * (head_dim + 8)
    shared_bytes = max(copied, joined)
    function = compile_function(_SOURCE, prologue, "short_attention", qkv.device, shared_bytes)
    out = torch.empty(num_tokens, num_heads * head_dim, dtype=qkv.dtype, device=qkv.device)
    function.launch(
        [
            *(ctypes.c_uint64(tensor.data_ptr()) for tensor in (qkv, cu_seqlens, out)),
            ctypes.c_int32(num_slots),
            ctypes.c_float(scale * math.log2(math.e)),
        ],
        # As many tiles as the tokens can make; those past the last end at once.
        grid=(min(num_tokens, num_tokens // _ROWS + num_slots), num_heads),
        threads=_THREADS,
        shared_bytes=shared_bytes,
    )
    return out
