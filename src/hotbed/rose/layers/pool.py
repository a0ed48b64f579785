"""Pooling: token states of each sequence, or of each span, to one fp32 row.

mean: average of the sequence's states; cls: its first; last: its last. A span's row is the average
of its states, zeros if it has none (late chunking: Günther et al. 2024, arXiv 2409.04701). All are
found by offset, never by a pad or end token id.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.fused import kernels_for

Pooling = Literal["mean", "cls", "last"]


class PooledRows(NamedTuple):
    """A step's rows on a GPU, one a slot (or span) in the order of the batch, without the pad slot.

    Attributes:
        pooled: fp32 [S, D]; zeros for a slot without tokens.
        default_form: fp32 [S, D], as a request without wishes gets them; may be `pooled` itself.
        finite: uint8 [S], 1 where all of a pooled row is finite.
        packed: int32 [header + S D], the memory of `finite`, then of `default_form`, so that one
            copy takes both; see `packed_header`.
        states: the tokens' states [T, D], where the step's configuration keeps them.
    """

    pooled: Tensor
    default_form: Tensor
    finite: Tensor
    packed: Tensor
    states: Tensor | None = None


def packed_header(num_slots: int) -> int:
    """Elements of `PooledRows.packed` before the rows: the flags, to a multiple of 16 bytes, which
    keeps the rows' address aligned for the kernel.
    """
    return -(-num_slots // 16) * 4


def empty_rows(num_slots: int, width: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """(packed, default_form, finite) of `PooledRows`, not written to yet."""
    header = packed_header(num_slots)
    packed = torch.empty(header + num_slots * width, dtype=torch.int32, device=device)
    finite = packed[:header].view(torch.uint8)[:num_slots]
    return packed, packed[header:].view(torch.float32).view(num_slots, width), finite


def packed_rows(pooled: Tensor, default_form: Tensor, finite: Tensor) -> PooledRows:
    """`PooledRows` of rows that lie elsewhere: the last two are copied into one piece of memory.

    Args:
        pooled: fp32 [S, D].
        default_form: fp32 [S, D].
        finite: bool or uint8 [S].
    """
    num_slots, width = default_form.shape
    packed, form, flags = empty_rows(num_slots, width, default_form.device)
    form.copy_(default_form)
    flags.copy_(finite)
    return PooledRows(pooled, form, flags, packed)


def pool(x_TD: Tensor, batch: PackedBatch, pooling: Pooling) -> Tensor:
    """Token states [T, D] to rows, fp32 [R, D], on a CPU: in the order of the batch's groups."""
    if batch.row_offsets is not None:
        return _pool_spans(x_TD, batch.row_offsets)
    rows = []
    for group in batch.groups:
        states = x_TD[group.start : group.stop].view(group.count, group.length, -1)
        if pooling == "mean":
            rows.append(states.mean(dim=1, dtype=torch.float32))
        else:
            rows.append(states[:, 0 if pooling == "cls" else -1].float())
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def _pool_spans(x_TD: Tensor, row_offsets: Tensor) -> Tensor:
    bounds = row_offsets[1:-1].view(-1, 2).tolist()
    rows = x_TD.new_zeros((len(bounds), x_TD.shape[1]), dtype=torch.float32)
    for row, (start, stop) in zip(rows, bounds, strict=True):
        if start < stop:
            torch.mean(x_TD[start:stop], dim=0, dtype=torch.float32, out=row)
    return rows


def pool_rows(x_TD: Tensor, batch: PackedBatch, pooling: Pooling, *, normalize: bool) -> PooledRows:
    """Token states [T, D] to rows on a GPU; sequences are found on the device.

    Args:
        x_TD: states, pad rows included.
        batch: its `cu_seqlens` or `row_offsets` are read.
        pooling: which.
        normalize: whether the default form is the L2-normalised row.
    """
    kernels = kernels_for(x_TD)
    assert kernels is not None, "pool_rows was called for states on a CPU: a bug in the engine"
    if batch.row_offsets is not None:
        # To the kernel gaps are slots like spans; their rows are dropped here.
        pooled, default_form, finite = (
            tensor[1::2]
            for tensor in kernels.pool(x_TD, batch.row_offsets, pooling="mean", normalize=normalize)
        )
        return packed_rows(pooled.contiguous(), default_form, finite)
    num_slots = len(batch.cu_seqlens) - 2
    packed, default_form, finite = empty_rows(num_slots, x_TD.shape[1], x_TD.device)
    pooled, _, _ = kernels.pool(
        x_TD,
        batch.cu_seqlens,
        pooling=pooling,
        normalize=normalize,
        out=(default_form, finite),
    )
    return PooledRows(pooled, default_form, finite, packed)
