"""Pooling: token states of each sequence to one fp32 row.

mean: average of the sequence's states; cls: its first; last: its last. Sequences are found by
offset, never by a pad or end token id.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from hotbed.rose.batch import LengthGroup


def pool(
    x_TD: Tensor,
    groups: tuple[LengthGroup, ...],
    pooling: Literal["mean", "cls", "last"],
) -> Tensor:
    """Token states [T, D] to rows, fp32 [S, D], one a sequence in the order of `groups`."""
    rows = []
    for group in groups:
        states = x_TD[group.start : group.stop].view(group.count, group.length, -1)
        if pooling == "mean":
            rows.append(states.mean(dim=1, dtype=torch.float32))
        else:
            rows.append(states[:, 0 if pooling == "cls" else -1].float())
    return rows[0] if len(rows) == 1 else torch.cat(rows)
