"""DeBERTa's attention: content to content, content to distance and distance to content.

    s[i, j] = (q[i] . k[j] + q[i] . kr[m(i, j)] + k[j] . qr[m(i, j)]) / sqrt(3 H)
    out[i]  = sum_j softmax_j(s[i, j]) v[j]

kr and qr are keys and queries of the table of distances, made once when the model is built; m is
the row of a distance. Distances up to half the buckets have rows of their own, the rest grow by a
constant factor up to the longest sequence. Sources: He et al. 2020, arXiv 2006.03654; He et al.
2021, arXiv 2111.09543.

As in `hotbed.rose.layers.relative_bias` no ragged backend takes it: on a CPU it is computed for
each group of equal length, on a GPU over the whole step with other sequences masked.
Legend: T tokens, N heads, H head dim, R rows of the table, P positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.relative_bias import of_other_sequences

# fp32 scores of a piece of a group on a CPU, 16 MB: they are read twice and written once.
_MAX_SCORES = 1 << 22


@dataclass(frozen=True, slots=True)
class _Part:
    """Sequences of one length, or a whole step.

    Attributes:
        rows: of the step.
        count: sequences in it.
        first: of the table's rows in use; `stop` is behind the last one.
        index: int64 [length, length], rows of the table from `first` on, query before key.
        hidden: bool [length, length] of pairs that do not see each other; None: all do.
    """

    rows: slice
    count: int
    first: int
    stop: int
    index: Tensor
    hidden: Tensor | None


class Distances:
    """Which row of the table two tokens have; one for all layers.

    Args:
        num_buckets: to one side.
        max_positions: P.
        device: of the batches.
    """

    def __init__(self, num_buckets: int, *, max_positions: int, device: torch.device) -> None:
        distances = torch.arange(1 - max_positions, max_positions)
        rows = bucket(distances, num_buckets, max_positions) + num_buckets
        rows = rows.clamp(0, 2 * num_buckets - 1)
        self._row_of = rows.tolist()
        self._by_distance = rows.to(device)
        self._zero = max_positions - 1
        self._num_rows = 2 * num_buckets

    def plan(self, batch: PackedBatch) -> list[_Part]:
        """The step's rows, for all layers."""
        if not batch.groups:
            hidden = of_other_sequences(batch)
            index = self._between(batch.positions)
            rows = slice(0, len(batch.token_ids))
            return [_Part(rows, 1, 0, self._num_rows, index, hidden)]
        parts = []
        for group in batch.groups:
            reach = group.length - 1
            first, last = self._row_of[self._zero - reach], self._row_of[self._zero + reach]
            positions = batch.positions[group.start : group.start + group.length]
            index = self._between(positions) - first
            rows = slice(group.start, group.stop)
            parts.append(_Part(rows, group.count, first, last + 1, index, None))
        return parts

    def _between(self, positions: Tensor) -> Tensor:
        return self._by_distance[positions[:, None] - positions[None, :] + self._zero]


class DisentangledAttention:
    """Stands where an attention backend may in `SelfAttention`; one a layer.

    Args:
        keys: of the table, [R, N, H].
        queries: of the table, [R, N, H].
    """

    def __init__(self, keys: Tensor, queries: Tensor) -> None:
        self._keys_NHR = keys.permute(1, 2, 0).contiguous()
        self._queries_NHR = queries.permute(1, 2, 0).contiguous()
        self._scale = (3 * keys.shape[-1]) ** -0.5

    def run(self, q_TNH: Tensor, k_TKH: Tensor, v_TKH: Tensor, plan: list[_Part]) -> Tensor:
        """See `hotbed.rose.attention.backend.AttentionBackend.run`."""
        out = torch.zeros_like(q_TNH, memory_format=torch.contiguous_format)
        for part in plan:
            length = len(part.index)
            shape = (part.count, length, *q_TNH.shape[1:])
            q, k, v = (x[part.rows].view(shape).transpose(1, 2) for x in (q_TNH, k_TKH, v_TKH))
            into = out[part.rows].view(shape)
            step = max(1, _MAX_SCORES // (q.shape[1] * length * length))
            for start in range(0, part.count, step):
                piece = slice(start, start + step)
                attended = self._attend(q[piece], k[piece], v[piece], part)
                into[piece].copy_(attended.transpose(1, 2))
        return out

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, part: _Part) -> Tensor:
        """q, k, v [S, N, T, H] to the same shape."""
        rows = slice(part.first, part.stop)
        index = part.index.expand(*q.shape[:2], -1, -1)
        to_distance = (q @ self._keys_NHR[..., rows]).gather(-1, index)
        from_distance = (k @ self._queries_NHR[..., rows]).gather(-1, index.transpose(2, 3))
        scores = to_distance.add_(from_distance.transpose(2, 3)).mul_(self._scale)
        if part.hidden is not None:
            scores.masked_fill_(part.hidden, -math.inf)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=scores, scale=self._scale)


def bucket(distances: Tensor, num_buckets: int, max_positions: int) -> Tensor:
    """Bucket of each distance (query position less key position), int64, of its sign.

    In fp32 to the last step, as the authors' code: rounded otherwise, whole numbers become the next
    bucket.
    """
    half = num_buckets // 2
    magnitude = distances.abs()
    whole = torch.log(torch.tensor((max_positions - 1) / half))
    growth = torch.log(magnitude.clamp(min=1) / half) / whole
    far = torch.ceil(growth * (half - 1)).long() + half
    return torch.where(magnitude <= half, distances, far * distances.sign())
