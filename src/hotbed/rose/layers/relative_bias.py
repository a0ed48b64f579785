"""Attention with a bias for the distance of query and key, as in MPNet and T5, or ALiBi.

    out[i] = sum_j softmax_j(q[i] . k[j] * scale + b[j - i]) v[j]

Learned: b is a bucket's. Half of the buckets are for keys to the right; of each half the first half
are distances 0, 1, 2, … of their own, the rest grow by a constant factor up to 128. ALiBi: b is a
slope of the head times the distance. Sources: Raffel et al. 2019, arXiv 1910.10683; Song et al.
2020, arXiv 2004.09297; Press et al. 2022, arXiv 2108.12409.

No ragged backend takes a bias, so it is computed here: on a CPU for each group of equal length, on
a GPU over the whole step with other sequences masked, which costs T x T x N of memory and can be
captured. Legend: T tokens, N heads, H head dim, B buckets, P positions.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.rose.batch import PackedBatch

_MAX_DISTANCE = 128
# Numbers of a group's bias on a CPU, 64 MB; what is longer is computed some queries at a time.
_MAX_BIAS = 1 << 24

Bias = list[tuple[slice, int, int, Tensor | None]]
"""Rows of a group, how many sequences it has and how long, and their bias [N, length, length]; None
where that would be too large to keep for all layers."""


class RelativeBiasAttention:
    """Stands where an attention backend may in `SelfAttention`.

    Args:
        by_distance: b of every head and distance from 1 - P to P - 1, [N, 2 P - 1].
        scale: of the scores.
    """

    def __init__(self, by_distance: Tensor, *, scale: float) -> None:
        self._by_distance = by_distance
        self._zero = by_distance.shape[1] // 2
        self._scale = scale

    def plan(self, batch: PackedBatch) -> Bias:
        """The step's bias, for all layers."""
        if not batch.groups:
            num_tokens = len(batch.token_ids)
            return [(slice(0, num_tokens), 1, num_tokens, self._of_step(batch))]
        plan: Bias = []
        for group in batch.groups:
            bias = None
            if len(self._by_distance) * group.length**2 <= _MAX_BIAS:
                positions = batch.positions[group.start : group.start + group.length]
                bias = self._between(positions, positions)
            plan.append((slice(group.start, group.stop), group.count, group.length, bias))
        return plan

    def run(self, q_TNH: Tensor, k_TKH: Tensor, v_TKH: Tensor, plan: Bias) -> Tensor:
        """See `hotbed.rose.attention.backend.AttentionBackend.run`."""
        out = torch.zeros_like(q_TNH, memory_format=torch.contiguous_format)
        for rows, count, length, bias in plan:
            shape = (count, length, *q_TNH.shape[1:])
            q, k, v = (x[rows].view(shape).transpose(1, 2) for x in (q_TNH, k_TKH, v_TKH))
            into = out[rows].view(shape).transpose(1, 2)
            if bias is not None:
                into.copy_(self._attend(q, k, v, bias))
                continue
            keys = torch.arange(length)
            step = max(1, _MAX_BIAS // (len(self._by_distance) * length))
            for queries in keys.split(step):
                piece = slice(int(queries[0]), int(queries[-1]) + 1)
                part = self._between(queries, keys)
                into[:, :, piece] = self._attend(q[:, :, piece], k, v, part)
        return out

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=self._scale)

    def _between(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Bias [N, queries, keys] of tokens at these positions."""
        return self._by_distance[:, keys[None, :] - queries[:, None] + self._zero]

    def _of_step(self, batch: PackedBatch) -> Tensor:
        """The same for a whole step, minus infinity between sequences; launches only."""
        bias = self._between(batch.positions, batch.positions)
        return bias.masked_fill_(of_other_sequences(batch), -math.inf)


def of_other_sequences(batch: PackedBatch) -> Tensor:
    """bool [T, T]: whether two tokens are of different sequences, of which pad rows are one."""
    offsets = batch.cu_seqlens
    tokens = torch.arange(len(batch.token_ids), dtype=offsets.dtype, device=offsets.device)
    slots = torch.searchsorted(offsets[1:], tokens, right=True)
    return slots[None, :] != slots[:, None]


def learned(table: Tensor, max_positions: int) -> Tensor:
    """`by_distance` of a table of buckets [B, N]."""
    distances = torch.arange(1 - max_positions, max_positions, device=table.device)
    return table[bucket(distances, len(table))].T.contiguous()


def alibi(num_heads: int, max_positions: int, *, like: Tensor) -> Tensor:
    """`by_distance` of ALiBi to both sides, of the dtype and device of `like`.

    The slopes are 2^(-8/N), 2^(-16/N), … where N is a power of two; else those of the power of two
    below, then every second one of that above.
    """
    below = 1 << (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (i + 1) / below) for i in range(below)]
    slopes += [2.0 ** (-4.0 * (i + 1) / below) for i in range(0, 2 * (num_heads - below), 2)]
    distances = torch.arange(1 - max_positions, max_positions, device=like.device).abs()
    steep = torch.tensor(slopes, device=like.device)
    return (-steep[:, None] * distances).to(like.dtype)


def bucket(distances: Tensor, num_buckets: int) -> Tensor:
    """Bucket of each distance (key position less query position), int64."""
    half = num_buckets // 2
    exact = half // 2
    magnitude = distances.abs()
    growth = torch.log(magnitude.clamp(min=1).float() / exact) / math.log(_MAX_DISTANCE / exact)
    large = (exact + (growth * (half - exact)).long()).clamp(max=half - 1)
    return torch.where(magnitude < exact, magnitude, large) + (distances > 0) * half
