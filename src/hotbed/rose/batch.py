"""A ragged batch made ready for a step: longest sequence first, rows padded to a token bucket.

Models with token types embed position p of a text that is the second of its sequence by row
``p + pair_offset`` of their position table, whose second part has the second token type added: the
type costs no input of its own. Offset 0: the model has no types.

Sorting by length puts sequences of equal length side by side, so that attention and pooling can
take them as one dense block without a copy; `restore` undoes it for the result.

The tokens at the end that fill the bucket (pad rows) belong to no sequence. Rows of linear layers
and norms do not mix, attention and pooling read only real rows: a pad row never reaches a result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotbed.core.ragged import RaggedBatch


@dataclass(frozen=True, slots=True)
class LengthGroup:
    """`count` sequences of `length` tokens each, side by side from token `start` on."""

    start: int
    count: int
    length: int

    @property
    def stop(self) -> int:
        return self.start + self.count * self.length


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """What a model's forward pass takes. T: tokens with padding, S: sequences.

    Attributes:
        token_ids: int32 [T]; pad rows hold id 0.
        positions: int32 [T], from 0 in each sequence, plus the pair offset in a second text; pad
            rows hold 0.
        num_tokens: real tokens; the rest of T are pad rows.
        cu_seqlens: int32 [slots + 1], slots >= S: the sequences' offsets, then slots without
            tokens; on a GPU the last slot holds the pad rows, as a sequence of their own, so that
            attention writes every row.
        max_seqlen: no slot is longer; on a GPU a bound that stays the same from capture to replay.
        groups: the sequences by length, in the order they lie; on a GPU empty, or one group
            that is the whole batch where the step's configuration is for one length.
        restore: int64 [R]; row i of the caller is row ``restore[i]`` of the pooled rows.
        places: int64 [R]; row i of the caller is of the sequence that lies at place ``places[i]``;
            on a GPU, where sequences lie as they came, empty like `restore`.
        row_offsets: int32 [2 slots + 2] if spans get the rows, else None: 0, then start and stop of
            each span in the order they lie, so gap and span by turns; on a GPU slots >= R, the
            rest without tokens. The last entry is T.
    """

    token_ids: Tensor
    positions: Tensor
    num_tokens: int
    cu_seqlens: Tensor
    max_seqlen: int
    groups: tuple[LengthGroup, ...]
    restore: NDArray[np.int64]
    row_offsets: Tensor | None = None
    places: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def token_bucket(num_tokens: int) -> int:
    """The padded number of tokens for a step of `num_tokens`.

    oneDNN builds a kernel per GEMM shape on first sight, 1 to 2 ms each (CPU, 2026-11-30): as much
    as a short text costs. Few shapes keep that to a start-up cost. No row is wasted up to 32
    tokens, where each counts, at most 7 up to 128, and under 11 % above.
    """
    step = 1
    for limit, coarser in ((32, 4), (64, 8), (128, 32), (512, 128)):
        if num_tokens > limit:
            step = coarser
    return -(-num_tokens // step) * step


def write_positions(into: NDArray[np.int32], batch: RaggedBatch, pair_offset: int) -> None:
    """Each token's position in its sequence, plus `pair_offset` in a second text; int32 [T]."""
    ascending, lengths = _ascending(batch.num_tokens), batch.lengths
    if batch.num_sequences == 1:
        into[:] = ascending
    else:
        np.subtract(ascending, np.repeat(batch.cu_seqlens[:-1], lengths), out=into)
    if pair_offset and batch.pair_starts is not None:
        into[into >= np.repeat(batch.pair_starts, lengths)] += pair_offset


_ASCENDING = np.arange(1 << 14, dtype=np.int32)


def _ascending(n: int) -> NDArray[np.int32]:
    """0 to n - 1, made once for the usual sizes."""
    if n <= len(_ASCENDING):
        return _ASCENDING[:n]
    return np.arange(n, dtype=np.int32)


def pack(batch: RaggedBatch, *, pair_offset: int = 0) -> PackedBatch:
    """Sort, pad and move a ragged batch into torch tensors (CPU memory)."""
    lengths = batch.lengths
    num_tokens = batch.num_tokens
    padded = token_bucket(num_tokens)
    token_ids = np.zeros(padded, dtype=np.int32)
    positions = np.zeros(padded, dtype=np.int32)
    if batch.num_sequences == 1:
        token_ids[:num_tokens] = batch.token_ids
        write_positions(positions[:num_tokens], batch, pair_offset)
        groups: tuple[LengthGroup, ...] = (LengthGroup(0, 1, num_tokens),)
        cu_seqlens = batch.cu_seqlens
        order = restore = np.zeros(1, dtype=np.int64)
    else:
        order = np.argsort(-lengths, kind="stable")
        sorted_lengths = lengths[order]
        cu_seqlens = np.zeros_like(batch.cu_seqlens)
        np.cumsum(sorted_lengths, out=cu_seqlens[1:])
        within = np.arange(num_tokens) - np.repeat(cu_seqlens[:-1], sorted_lengths)
        source = np.repeat(batch.cu_seqlens[:-1][order], sorted_lengths) + within
        token_ids[:num_tokens] = batch.token_ids[source]
        if pair_offset and batch.pair_starts is not None:
            write_positions(positions[:num_tokens], batch, pair_offset)
            positions[:num_tokens] = positions[source]
        else:
            positions[:num_tokens] = within
        groups = _groups(sorted_lengths)
        restore = np.empty(len(order), dtype=np.int64)
        restore[order] = np.arange(len(order))
    row_offsets, places = None, restore
    if batch.spans is not None:
        row_offsets, restore, places = _spans(batch, order, cu_seqlens, padded)
    return PackedBatch(
        token_ids=torch.from_numpy(token_ids),
        positions=torch.from_numpy(positions),
        num_tokens=num_tokens,
        cu_seqlens=torch.from_numpy(cu_seqlens),
        max_seqlen=groups[0].length,
        groups=groups,
        restore=restore,
        places=places,
        row_offsets=row_offsets,
    )


def _spans(
    batch: RaggedBatch, order: NDArray[np.int64], cu_seqlens: NDArray[np.int32], padded: int
) -> tuple[Tensor, NDArray[np.int64], NDArray[np.int64]]:
    """(row_offsets, restore, places) of a batch with spans whose sequences lie in this order."""
    spans = batch.spans
    assert spans is not None, "called for a batch with spans"
    num_spans = len(spans.bounds)
    place = np.empty(len(order), dtype=np.int64)  # of each of the caller's sequences
    place[order] = np.arange(len(order))
    place = np.repeat(place, spans.counts)
    span_order = np.argsort(place, kind="stable")
    offsets = np.zeros(2 * num_spans + 2, dtype=np.int32)
    bounds = spans.bounds + cu_seqlens[place][:, None]
    offsets[1:-1] = bounds[span_order].ravel()
    offsets[-1] = padded
    restore = np.empty(num_spans, dtype=np.int64)
    restore[span_order] = np.arange(num_spans)
    return torch.from_numpy(offsets), restore, place


def _groups(sorted_lengths: NDArray[np.int32]) -> tuple[LengthGroup, ...]:
    groups = []
    start = 0
    values, counts = np.unique(-sorted_lengths, return_counts=True)
    for length, count in zip((-values).tolist(), counts.tolist(), strict=True):
        groups.append(LengthGroup(start, count, length))
        start += count * length
    return tuple(groups)
