"""From a step's rows on the device to its `StepResult`: what each segment wants, copied out.

Pooling has made the default form inside the graph, in one piece of memory with the flags, so the
commonest step takes a single copy. Other forms are made here, and copied one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hotbed.core.output import OutputSegment
from hotbed.core.step import StepResult
from hotbed.rose.layers.pool import PooledRows
from hotbed.rose.recipe import AnyRecipe
from hotbed.rose.staging import Staging, StagingPool, aligned

# Up to so much memory slots without a sequence are copied too: 256 KiB take the bus some 10 us
# while the host goes on, and leaving them out costs the host a view.
_WHOLE_INTS = 1 << 16


class Readback(NamedTuple):
    """Copies that were enqueued; `result` may be called once they are done.

    Attributes:
        staging: where they go: the flags, the default form [sequences, width], other forms.
        num_sequences: of the step.
        header: int32 elements before the default form.
        width: of the default form.
        parts: for each segment (start, stop) in the default form, or its rows in `staging`.
    """

    staging: Staging
    num_sequences: int
    header: int
    width: int
    parts: list[tuple[int, int] | NDArray[Any]]

    def is_there(self) -> bool:
        """Whether the copies are done."""
        return self.staging.event is not None and bool(self.staging.event.query())

    def result(self) -> StepResult:
        """Rows and flags in memory of their own: the staging is wanted for other steps."""
        host, header = self.staging.array, self.header
        finite = host.view(np.uint8)[: self.num_sequences] != 0
        rows: list[NDArray[Any]] = []
        for part in self.parts:
            if isinstance(part, tuple):
                start, stop = (header + self.width * row for row in part)
                rows.append(host[start:stop].view(np.float32).reshape(-1, self.width).copy())
            else:
                rows.append(part.copy())
        return StepResult(rows, finite)


def read_back(
    rows: PooledRows,
    segments: Sequence[OutputSegment],
    *,
    num_sequences: int,
    recipe: AnyRecipe,
    pool: StagingPool,
) -> Readback:
    """Enqueue the copies of one step's rows on torch's current stream.

    Args:
        rows: of the step, maybe not computed yet.
        segments: cover the step's sequences.
        num_sequences: of the step; `rows` has as many slots or more.
        recipe: of the model's rows.
        pool: of pinned memory; the caller gives the piece back.
    """
    num_slots, width = rows.default_form.shape
    packed = rows.packed
    header = packed.numel() - num_slots * width
    is_default = [recipe.is_default_form(segment.spec, width) for segment in segments]
    if not any(is_default):
        num_ints = header
    elif num_slots * width <= _WHOLE_INTS:
        num_ints = packed.numel()
    else:
        num_ints = header + num_sequences * width
    if all(is_default):
        staging = pool.take(num_ints)
        parts: list[tuple[int, int] | NDArray[Any]] = [(s.start, s.stop) for s in segments]
    else:
        with torch.inference_mode():
            others = [
                None if default else recipe.finish(rows.pooled, (segment,))[0]
                for segment, default in zip(segments, is_default, strict=True)
            ]
        sizes = [0 if t is None else aligned(-(-t.nbytes // 4)) for t in others]
        at = aligned(num_ints)
        staging = pool.take(at + sum(sizes))
        parts = []
        for segment, tensor, size in zip(segments, others, sizes, strict=True):
            if tensor is None:
                parts.append((segment.start, segment.stop))
                continue
            view = staging.tensor[at : at + size].view(torch.uint8)[: tensor.nbytes]
            view = view.view(tensor.dtype).view(tensor.shape)
            view.copy_(tensor, non_blocking=True)
            parts.append(view.numpy())
            at += size
    if num_ints < packed.numel():
        packed = packed.narrow(0, 0, num_ints)
    staging.first(num_ints).copy_(packed, non_blocking=True)
    return Readback(staging, num_sequences, header, width, parts)
