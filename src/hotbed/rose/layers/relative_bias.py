"""Attention with a learned bias for the distance of query and key, as in MPNet and T5.

    out[i] = sum_j softmax_j(q[i] . k[j] * scale + b[bucket(j - i)]) v[j]

Half of the buckets are for keys to the right. Of each half the first half are distances 0, 1, 2, …
of their own, the rest grow by a constant factor up to 128. Source: Raffel et al. 2019, arXiv
1910.10683; Song et al. 2020, arXiv 2004.09297.

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

Bias = list[tuple[slice, int, Tensor]]
"""Rows of a group, how many sequences it has, and their bias [N, length, length]."""


class RelativeBiasAttention:
    """Stands where an attention backend may in `SelfAttention`.

    Args:
        table: [B, N].
        max_positions: P.
        scale: of the scores.
    """

    def __init__(self, table: Tensor, *, max_positions: int, scale: float) -> None:
        distances = torch.arange(1 - max_positions, max_positions, device=table.device)
        self._by_distance = table[bucket(distances, len(table))].T.contiguous()
        self._zero = max_positions - 1
        self._scale = scale

    def plan(self, batch: PackedBatch) -> Bias:
        """The step's bias, for all layers."""
        if not batch.groups:
            return [(slice(0, len(batch.token_ids)), 1, self._of_step(batch))]
        return [
            (
                slice(group.start, group.stop),
                group.count,
                self._between(batch.positions[group.start : group.start + group.length]),
            )
            for group in batch.groups
        ]

    def run(self, q_TNH: Tensor, k_TKH: Tensor, v_TKH: Tensor, plan: Bias) -> Tensor:
        """See `hotbed.rose.attention.backend.AttentionBackend.run`."""
        out = torch.zeros_like(q_TNH, memory_format=torch.contiguous_format)
        for rows, count, bias in plan:
            shape = (count, bias.shape[-1], *q_TNH.shape[1:])
            q, k, v = (x[rows].view(shape).transpose(1, 2) for x in (q_TNH, k_TKH, v_TKH))
            attended = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=self._scale)
            out[rows].view(shape).copy_(attended.transpose(1, 2))
        return out

    def _between(self, positions: Tensor) -> Tensor:
        """Bias [N, T, T] of tokens at these positions, query before key."""
        return self._by_distance[:, positions[None, :] - positions[:, None] + self._zero]

    def _of_step(self, batch: PackedBatch) -> Tensor:
        """The same for a whole step, minus infinity between sequences; launches only."""
        return self._between(batch.positions).masked_fill_(of_other_sequences(batch), -math.inf)


def of_other_sequences(batch: PackedBatch) -> Tensor:
    """bool [T, T]: whether two tokens are of different sequences, of which pad rows are one."""
    offsets = batch.cu_seqlens
    tokens = torch.arange(len(batch.token_ids), dtype=offsets.dtype, device=offsets.device)
    slots = torch.searchsorted(offsets[1:], tokens, right=True)
    return slots[None, :] != slots[:, None]


def bucket(distances: Tensor, num_buckets: int) -> Tensor:
    """Bucket of each distance (key position less query position), int64."""
    half = num_buckets // 2
    exact = half // 2
    magnitude = distances.abs()
    growth = torch.log(magnitude.clamp(min=1).float() / exact) / math.log(_MAX_DISTANCE / exact)
    large = (exact + (growth * (half - exact)).long()).clamp(max=half - 1)
    return torch.where(magnitude < exact, magnitude, large) + (distances > 0) * half
