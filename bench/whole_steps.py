"""Whole steps of a model as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from hotbed.rose.batch import LengthGroup, PackedBatch

DEVICE = torch.device("cuda", 0)
Forward = Callable[[PackedBatch], Tensor]


def graph_of(forward: Forward, batch: PackedBatch) -> torch.cuda.CUDAGraph:
    """The step, run once before it is captured."""
    forward(batch)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        forward(batch)
    return graph


def offsets_of(lengths: list[int], device: torch.device) -> Tensor:
    """Where sequences of these lengths begin and end, int32 [n + 1]."""
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)


def step_of(count: int, length: int, vocabulary: int) -> PackedBatch:
    """`count` texts of `length` random ids."""
    generator = torch.Generator(DEVICE).manual_seed(count * length)
    total = count * length
    ids = torch.randint(vocabulary, (total,), generator=generator, device=DEVICE)
    return PackedBatch(
        token_ids=ids.int(),
        positions=torch.arange(total, dtype=torch.int32, device=DEVICE) % length,
        num_tokens=total,
        cu_seqlens=offsets_of([length] * count, DEVICE),
        max_seqlen=length,
        groups=(LengthGroup(0, count, length),),
        restore=np.arange(count),
    )
