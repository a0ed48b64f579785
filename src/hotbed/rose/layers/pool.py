"""Pooling: token states of each sequence to one fp32 row.

mean: average of the sequence's states; cls: its first; last: its last. Sequences are found by
offset, never by a pad or end token id.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.fused import kernels_for

Pooling = Literal["mean", "cls", "last"]


class PooledRows(NamedTuple):
    """A step's rows on a GPU, one a slot in the order of the batch, without the pad slot.

    Attributes:
        pooled: fp32 [S, D]; zeros for a slot without tokens.
        default_form: fp32 [S, D], as a request without wishes gets them; may be `pooled` itself.
        finite: uint8 [S], 1 where all of a pooled row is finite.
        packed: int32 [header + S D], the memory of `finite`, then of `default_form`, so that one
            copy takes both; see `packed_header`.
    """

    pooled: Tensor
    default_form: Tensor
    finite: Tensor
    packed: Tensor


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


def pool(x_TD: Tensor, batch: PackedBatch, pooling: Pooling) -> Tensor:
    """Token states [T, D] to rows, fp32 [S, D], on a CPU: in the order of the batch's groups."""
    rows = []
    for group in batch.groups:
        states = x_TD[group.start : group.stop].view(group.count, group.length, -1)
        if pooling == "mean":
            rows.append(states.mean(dim=1, dtype=torch.float32))
        else:
            rows.append(states[:, 0 if pooling == "cls" else -1].float())
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def pool_rows(x_TD: Tensor, batch: PackedBatch, pooling: Pooling, *, normalize: bool) -> PooledRows:
    """Token states [T, D] to rows on a GPU; sequences are found on the device.

    Args:
        x_TD: states, pad rows included.
        batch: its `cu_seqlens` are read.
        pooling: which.
        normalize: whether the default form is the L2-normalised row.
    """
    kernels = kernels_for(x_TD)
    assert kernels is not None, "pool_rows was called for states on a CPU: a bug in the engine"
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
