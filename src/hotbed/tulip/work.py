"""What Tulip works on: items as they were accepted, the steps they are cut into, their answers.

An item is one request: a ragged batch and one output recipe. A step is one call of the engine:
whole items or runs of an item's sequences, grouped by recipe. A sequence gives one row, or one for
each of its spans; of outputs that are not plain it counts as one row whatever it gives. Plain
records: no clock, asyncio or torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hotbed.core.errors import HotbedError
from hotbed.core.model_info import ModelInfo
from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch, join_pair_starts
from hotbed.core.rows import RowSet
from hotbed.core.step import StepResult


class Item:
    """One request on its way through the scheduler. Compared by identity.

    Args:
        batch: S >= 1 sequences that suit the model.
        spec: recipe of the rows; equal recipes share an output segment, so dimensions and
            normalisation should be explicit.
        on_answer: called once, on the event loop, with the answer.
        tag: the sender's name for the item.
        deadline: time on the caller's clock after which nobody wants the rows.
        client: who sent it, hashable; clients take turns.
        traceparent: W3C trace context of the sender's span; empty: not traced.
    """

    __slots__ = (
        "accepted_at",
        "batch",
        "client",
        "deadline",
        "first_started_at",
        "is_answered",
        "last_started_at",
        "num_done",
        "num_rows",
        "num_sequences",
        "num_taken",
        "num_tokens",
        "num_waiting_tokens",
        "on_answer",
        "rows",
        "sets",
        "spec",
        "tag",
        "traceparent",
    )

    def __init__(
        self,
        batch: RaggedBatch,
        spec: OutputSpec,
        *,
        on_answer: Callable[[Answer], None],
        tag: int = 0,
        deadline: float = math.inf,
        client: object = None,
        traceparent: str = "",
    ) -> None:
        self.client = client
        self.traceparent = traceparent
        self.batch = batch
        self.spec = spec
        self.on_answer = on_answer
        self.tag = tag
        self.deadline = deadline
        self.num_sequences = batch.num_sequences
        self.num_rows = batch.num_rows
        self.num_tokens = batch.num_tokens
        # The scheduler's own notes from here on.
        self.num_waiting_tokens = self.num_tokens
        self.num_taken = 0
        self.num_done = 0
        self.rows: NDArray[Any] | None = None
        self.sets: dict[int, list[RowSet]] | None = None
        self.is_answered = False
        self.accepted_at = 0.0
        self.first_started_at = math.inf
        self.last_started_at = 0.0

    def store(self, start: int, rows: NDArray[Any] | list[RowSet]) -> None:
        """Keep the rows from `start` on; of a recipe that is not plain a set for each output.

        Rows of the whole item at once are kept as they are, others are copied into one array that
        is allocated with the first of them.
        """
        if isinstance(rows, list):
            self.num_done += rows[0].num_sequences
            self.sets = self.sets or {}
            self.sets[start] = rows
            return
        self.num_done += len(rows)
        if len(rows) == self.num_rows:
            self.rows = rows
            return
        if self.rows is None:
            self.rows = np.empty((self.num_rows, rows.shape[1]), dtype=rows.dtype)
        self.rows[start : start + len(rows)] = rows

    def result(self) -> NDArray[Any] | list[RowSet]:
        """What was stored, in the order of the sequences; all of it is there."""
        if self.sets is None:
            assert self.rows is not None, "rows were stored: this is a bug"
            return self.rows
        parts = [self.sets[start] for start in sorted(self.sets)]
        return [RowSet.concatenate(of_output) for of_output in zip(*parts, strict=True)]


class Answer(NamedTuple):
    """The one answer of an item: rows [S, W], a set for each output of a recipe that is not plain,
    or an error. Times in seconds, 0 with an error.
    """

    item: Item
    result: NDArray[Any] | list[RowSet] | HotbedError
    queue_s: float = 0.0
    """From acceptance to the start of the item's last step."""
    device_s: float = 0.0
    """From the start of the item's first step to its last result."""
    total_s: float = 0.0
    """From acceptance to the result."""


class Part(NamedTuple):
    """Sequences start to stop (exclusive) of an item."""

    item: Item
    start: int
    stop: int

    num_tokens: int
    first_row: int
    num_rows: int

    @staticmethod
    def of(item: Item, start: int, stop: int) -> Part:
        """The part with its tokens and rows counted."""
        if stop - start == item.num_sequences:
            return Part(item, start, stop, item.num_tokens, 0, item.num_rows)
        cu = item.batch.cu_seqlens
        first_row, end = item.batch.rows_of(start, stop)
        return Part(item, start, stop, int(cu[stop] - cu[start]), first_row, end - first_row)


@dataclass(eq=False, slots=True)
class Step:
    """One call of the engine.

    Attributes:
        groups: parts by recipe, in the order of the step's rows.
        num_sequences: in all parts.
        num_rows: in all parts.
        num_tokens: in all parts.
        composed_at: when the scheduler handed it out.
        started_at: when it began to run, known once it has ended.
    """

    groups: list[tuple[OutputSpec, list[Part]]]
    num_sequences: int
    num_rows: int
    num_tokens: int
    composed_at: float = 0.0
    started_at: float = 0.0

    @staticmethod
    def of(parts: Sequence[Part]) -> Step:
        """Step of these parts; parts of one recipe come to lie together."""
        groups: dict[OutputSpec, list[Part]] = {}
        for part in parts:
            groups.setdefault(part.item.spec, []).append(part)
        return Step(
            list(groups.items()),
            num_sequences=sum(p.stop - p.start for p in parts),
            num_rows=sum(p.num_rows for p in parts),
            num_tokens=sum(p.num_tokens for p in parts),
        )

    def parts(self) -> Iterable[Part]:
        """All parts in the order of the step's rows."""
        for _, parts in self.groups:
            yield from parts

    def halves(self) -> tuple[Step, Step]:
        """The step's unanswered sequences in two steps; the second has no part if one is left."""
        live = [p for p in self.parts() if not p.item.is_answered]
        num_left = (sum(p.stop - p.start for p in live) + 1) // 2
        left: list[Part] = []
        right: list[Part] = []
        for item, start, stop, *_ in live:
            cut = min(stop, start + num_left)
            num_left -= cut - start
            if cut > start:
                left.append(Part.of(item, start, cut))
            if stop > cut:
                right.append(Part.of(item, cut, stop))
        return Step.of(left), Step.of(right)

    def build(self) -> tuple[RaggedBatch, list[OutputSegment]]:
        """The engine's input: the parts' tokens end to end, a segment an output of a recipe."""
        if any(part.item.batch.spans is not None for part in self.parts()):
            return self._build_with_spans()
        ids: list[NDArray[np.int32]] = []
        cu = np.zeros(self.num_sequences + 1, dtype=np.int32)
        segments: list[OutputSegment] = []
        row = token = 0
        for spec, parts in self.groups:
            segment_start = row
            for item, start, stop, *_ in parts:
                batch = item.batch
                if item.num_sequences == 1:  # the commonest case, without slicing
                    ids.append(batch.token_ids)
                    token += item.num_tokens
                    cu[row + 1] = token
                else:
                    offsets = batch.cu_seqlens[start : stop + 1]
                    first, last = int(offsets[0]), int(offsets[-1])
                    ids.append(batch.token_ids[first:last])
                    np.add(offsets[1:], token - first, out=cu[row + 1 : row + 1 + stop - start])
                    token += last - first
                row += stop - start
            segments += _segments(segment_start, row, spec)
        token_ids = ids[0] if len(ids) == 1 else np.concatenate(ids)
        return RaggedBatch(token_ids, cu, pair_starts=self._pair_starts()), segments

    def _pair_starts(self) -> NDArray[np.int32] | None:
        """Of all parts; None if no item has any, as of models without token types."""
        if all(part.item.batch.pair_starts is None for part in self.parts()):
            return None
        return join_pair_starts([p.item.batch.slice(p.start, p.stop) for p in self.parts()])

    def _build_with_spans(self) -> tuple[RaggedBatch, list[OutputSegment]]:
        """The same where spans get the rows: there are few such items, so the plain way serves."""
        batches = []
        segments: list[OutputSegment] = []
        row = 0
        for spec, parts in self.groups:
            batches += [part.item.batch.slice(part.start, part.stop) for part in parts]
            num_rows = sum(part.num_rows for part in parts)
            segments += _segments(row, row + num_rows, spec)
            row += num_rows
        return RaggedBatch.concatenate(batches), segments

    def check(self, result: StepResult, info: ModelInfo) -> None:
        """Raise RuntimeError unless the result has this step's shape: an engine's bug."""
        shapes = [rows.shape for rows in result.rows]
        wanted: list[tuple[int, int]] = []
        for spec, parts in self.groups:
            num_rows = sum(p.num_rows for p in parts)
            for one in spec.each():
                if one.kind != "dense":
                    segment = len(wanted)
                    counts = None if result.counts is None else result.counts[segment]
                    _check_counts(counts, num_rows)
                    num = 0 if counts is None else int(counts.sum())
                else:
                    num = num_rows
                wanted.append((num, info.row_width(one)))
        if shapes != wanted or result.finite.shape != (self.num_rows,):
            raise RuntimeError(
                f"the engine returned rows of shapes {shapes} and finite of shape "
                f"{result.finite.shape} for a step of {wanted}: this is a bug"
            )


def _segments(start: int, stop: int, spec: OutputSpec) -> list[OutputSegment]:
    if spec.is_plain:
        return [OutputSegment(start, stop, spec)]
    return [OutputSegment(start, stop, one) for one in spec.each()]


def _check_counts(counts: NDArray[np.int32] | None, num_sequences: int) -> None:
    if counts is None or counts.shape != (num_sequences,):
        raise RuntimeError(
            f"the engine returned counts of {'nothing' if counts is None else counts.shape} for "
            f"{num_sequences} sequences: this is a bug"
        )
