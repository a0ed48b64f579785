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
from torch import Tensor

from hotbed.core.output import OutputSegment
from hotbed.core.ragged import Int32Array
from hotbed.core.step import StepResult
from hotbed.rose.layers.pool import PooledRows
from hotbed.rose.outputs import Collect, Made
from hotbed.rose.recipe import AnyRecipe
from hotbed.rose.staging import Staging, StagingPool, aligned

# Up to so much memory slots without a row are copied too: 256 KiB take the bus some 10 us
# while the host goes on, and leaving them out costs the host a view.
_WHOLE_INTS = 1 << 16


class MadePart(NamedTuple):
    """An output other than dense rows, on its way over.

    Attributes:
        start, stop: rows of the batch.
        values, finite: as of `Made`, in the staging.
        collect: the rest of the work.
    """

    start: int
    stop: int
    values: NDArray[Any]
    finite: NDArray[np.uint8]
    collect: Collect


class Readback(NamedTuple):
    """Copies that were enqueued; `result` may be called once they are done.

    Attributes:
        staging: where they go: the flags, the default form [rows, width], other forms and outputs.
        num_rows: of the step: its sequences, or their spans.
        header: int32 elements before the default form.
        width: of the default form.
        parts: for each segment (start, stop) in the default form, or its rows in `staging`.
    """

    staging: Staging
    num_rows: int
    header: int
    width: int
    parts: Sequence[tuple[int, int] | NDArray[Any] | MadePart]

    def is_there(self) -> bool:
        """Whether the copies are done."""
        return self.staging.event is not None and bool(self.staging.event.query())

    def result(self) -> StepResult:
        """Rows and flags in memory of their own: the staging is wanted for other steps."""
        host, header = self.staging.array, self.header
        finite = host.view(np.uint8)[: self.num_rows] != 0
        rows: list[NDArray[Any]] = []
        counts: list[Int32Array | None] = []
        for part in self.parts:
            if isinstance(part, MadePart):
                made, is_finite = part.collect(part.values, part.finite != 0)
                finite[part.start : part.stop] &= is_finite
                rows.append(made.rows)
                counts.append(made.counts)
                continue
            counts.append(None)
            if isinstance(part, tuple):
                start, stop = (header + self.width * row for row in part)
                rows.append(host[start:stop].view(np.float32).reshape(-1, self.width).copy())
            else:
                rows.append(part.copy())
        return StepResult(rows, finite, counts)


def read_back(
    rows: PooledRows,
    segments: Sequence[OutputSegment],
    *,
    num_rows: int,
    recipe: AnyRecipe,
    pool: StagingPool,
    made: Sequence[Made] = (),
) -> Readback:
    """Enqueue the copies of one step's rows on torch's current stream.

    Args:
        rows: of the step, maybe not computed yet.
        segments: cover the step's rows.
        num_rows: of the step: its sequences, or their spans; `rows` has as many slots or more.
        recipe: of the model's rows.
        pool: of pinned memory; the caller gives the piece back.
        made: the outputs of those segments that are not dense, in their order.
    """
    num_slots, width = rows.default_form.shape
    packed = rows.packed
    header = packed.numel() - num_slots * width
    is_default = [
        segment.spec.kind == "dense" and recipe.is_default_form(segment.spec, width)
        for segment in segments
    ]
    if not any(is_default):
        num_ints = header
    elif num_slots * width <= _WHOLE_INTS:
        num_ints = packed.numel()
    else:
        num_ints = header + num_rows * width
    parts: list[tuple[int, int] | NDArray[Any] | MadePart]
    if all(is_default):
        staging = pool.take(num_ints)
        parts = [(s.start, s.stop) for s in segments]
    else:
        with torch.inference_mode():
            others = _others(rows, segments, is_default, recipe, made)
        at = aligned(num_ints)
        staging = pool.take(at + sum(_num_ints(t) for tensors in others for t in tensors))
        parts = []
        waiting = iter(made)
        for segment, tensors in zip(segments, others, strict=True):
            views = []
            for tensor in tensors:
                views.append(_copy(tensor, staging, at))
                at += _num_ints(tensor)
            if not views:
                parts.append((segment.start, segment.stop))
            elif segment.spec.kind == "dense":
                parts.append(views[0])
            else:
                collect = next(waiting).collect
                parts.append(MadePart(segment.start, segment.stop, views[0], views[1], collect))
    if num_ints < packed.numel():
        packed = packed.narrow(0, 0, num_ints)
    staging.first(num_ints).copy_(packed, non_blocking=True)
    return Readback(staging, num_rows, header, width, parts)


def _others(
    rows: PooledRows,
    segments: Sequence[OutputSegment],
    is_default: Sequence[bool],
    recipe: AnyRecipe,
    made: Sequence[Made],
) -> list[tuple[Tensor, ...]]:
    """For each segment what is copied besides the default form: nothing, its rows in another form,
    or the values and flags of another output.
    """
    waiting = iter(made)
    others: list[tuple[Tensor, ...]] = []
    for segment, default in zip(segments, is_default, strict=True):
        if segment.spec.kind != "dense":
            one = next(waiting)
            others.append((one.values, one.finite.view(torch.uint8)))
        elif default:
            others.append(())
        else:
            others.append((recipe.finish(rows.pooled, (segment,))[0],))
    return others


def _num_ints(tensor: Tensor) -> int:
    """Of staging that it takes, whole cache lines."""
    return aligned(-(-tensor.nbytes // 4))


def _copy(tensor: Tensor, staging: Staging, at: int) -> NDArray[Any]:
    """Enqueue the copy to `at`; the array is there once it is done."""
    view = staging.tensor[at : at + _num_ints(tensor)].view(torch.uint8)[: tensor.nbytes]
    view = view.view(tensor.dtype).view(tensor.shape)
    view.copy_(tensor, non_blocking=True)
    array: NDArray[Any] = view.numpy()
    return array
