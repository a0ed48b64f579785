"""Packed batches and q, k, v as backends get them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch

from hotbed.rose.attention.backend import AttentionSpec
from hotbed.rose.batch import LengthGroup, PackedBatch


def offsets_of(lengths: Sequence[int], total: int, num_slots: int) -> list[int]:
    """Offsets of `lengths`, then empty slots, then the pad slot up to `total`."""
    used = list(accumulate(lengths, initial=0))
    return used + used[-1:] * (num_slots - len(lengths) - 1) + [total]


def device_batch(
    lengths: Sequence[int],
    total: int,
    *,
    num_slots: int = 16,
    device: torch.device | str = "cpu",
    max_seqlen: int | None = None,
    groups: tuple[LengthGroup, ...] = (),
) -> PackedBatch:
    """A batch in the GPU's form: `num_slots` slots, the last of which holds the pad rows."""
    offsets = offsets_of(lengths, total, num_slots)
    return PackedBatch(
        token_ids=torch.zeros(total, dtype=torch.int32, device=device),
        positions=torch.zeros(total, dtype=torch.int32, device=device),
        num_tokens=total,
        cu_seqlens=torch.tensor(offsets, dtype=torch.int32, device=device),
        max_seqlen=total if max_seqlen is None else max_seqlen,
        groups=groups,
        restore=np.zeros(0, dtype=np.int64),
    )


def split_heads(
    heads: torch.Tensor, spec: AttentionSpec
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k and v as strided views of one projection [T, N + 2 K, H]."""
    q, k, v = heads.split((spec.num_heads, spec.num_kv_heads, spec.num_kv_heads), dim=1)
    return q, k, v
