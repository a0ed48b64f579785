"""The ragged batch: sequences of token ids laid end to end, with offsets and no padding.

The one currency from Ivy to the kernels. A sequence gives one row, or one for each of its spans.
Legend: T tokens in all, S sequences, R rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Spans:
    """Parts of sequences that get a row each: chunks of a document that was read as a whole.

    The row of a span is the mean of its tokens' states, zeros if it has no token. Tokens between
    spans (separators, special tokens) are in no row.

    Attributes:
        bounds: int32 [R, 2], start and stop of each span, counted from its sequence's first token.
            Within a sequence they rise and do not overlap.
        cu_spans: int32 [S + 1], starts at 0, rises, ends at R: sequence i has the spans
            ``bounds[cu_spans[i]:cu_spans[i + 1]]``, at least one.
    """

    bounds: Int32Array
    cu_spans: Int32Array

    @staticmethod
    def whole(lengths: Int32Array) -> Spans:
        """One span a sequence, all of it: the row a mean model gives without spans."""
        bounds = np.stack((np.zeros_like(lengths), lengths), axis=1)
        return Spans(bounds, np.arange(len(lengths) + 1, dtype=np.int32))

    @property
    def counts(self) -> Int32Array:
        """int32 [S]: spans of each sequence."""
        return self.cu_spans[1:] - self.cu_spans[:-1]

    def check(self, lengths: Int32Array) -> None:
        """Raise ValueError unless these are spans of sequences of `lengths`."""
        bounds, cu = self.bounds, self.cu_spans
        if bounds.dtype != np.int32 or bounds.ndim != 2 or bounds.shape[1] != 2:
            raise ValueError(f"span bounds must be int32 [R, 2], got {bounds.dtype} {bounds.shape}")
        if cu.dtype != np.int32 or cu.shape != (len(lengths) + 1,):
            raise ValueError(f"cu_spans must be int32 [{len(lengths) + 1}], got {cu.dtype}")
        if cu[0] != 0 or cu[-1] != len(bounds) or bool((self.counts < 1).any()):
            raise ValueError(
                f"every sequence needs at least 1 span, and their counts must sum to the "
                f"{len(bounds)} spans there are"
            )
        # Start of each span, its end, and the place it must not begin before.
        start, stop = bounds[:, 0], bounds[:, 1]
        before = np.zeros_like(start)
        before[1:] = stop[:-1]
        before[cu[:-1]] = 0
        wrong = (start < before) | (stop < start) | (stop > np.repeat(lengths, self.counts))
        if bool(wrong.any()):
            span = int(np.argmax(wrong))
            sequence = int(np.searchsorted(cu, span, side="right")) - 1
            raise ValueError(
                f"span {span - int(cu[sequence])} of sequence {sequence} is "
                f"{int(start[span])} to {int(stop[span])}: spans must rise without overlap within "
                f"the sequence's {int(lengths[sequence])} tokens"
            )


@dataclass(frozen=True, slots=True)
class RaggedBatch:
    """S sequences of int32 token ids, laid end to end.

    Attributes:
        token_ids: int32 [T], C-contiguous.
        cu_seqlens: int32 [S + 1], starts at 0, never decreases, ends at T; sequence i is
            ``token_ids[cu_seqlens[i]:cu_seqlens[i + 1]]``.
        spans: what gets a row; None for one row a sequence, pooled the model's way.
        pair_starts: int32 [S], or None. Sequence i holds two texts, and its tokens from
            ``pair_starts[i]`` on (counted from its start; its length: there are none) belong to
            the second, for models with a token type for it. None: no sequence has a second text,
            or the model makes no difference.

    The arrays are not copied: who builds the batch promises not to write to them afterwards.

    Raises:
        ValueError: on a wrong dtype, shape, offset or span.
    """

    token_ids: Int32Array
    cu_seqlens: Int32Array
    spans: Spans | None = None
    pair_starts: Int32Array | None = None

    def __post_init__(self) -> None:
        ids, cu = self.token_ids, self.cu_seqlens
        if ids.dtype != np.int32 or ids.ndim != 1 or not ids.flags.c_contiguous:
            raise ValueError(f"token_ids must be contiguous int32 [T], got {ids.dtype} {ids.shape}")
        if cu.dtype != np.int32 or cu.ndim != 1 or len(cu) < 1:
            raise ValueError(f"cu_seqlens must be int32 [S + 1], got {cu.dtype} {cu.shape}")
        if cu[0] != 0 or cu[-1] != len(ids) or bool((cu[1:] < cu[:-1]).any()):
            raise ValueError(
                f"cu_seqlens must rise from 0 to the number of tokens ({len(ids)}), "
                f"got {cu[0]} to {cu[-1]}"
            )
        if self.spans is not None:
            self.spans.check(self.lengths)
        starts = self.pair_starts
        if starts is None:
            return
        if starts.dtype != np.int32 or starts.shape != (len(cu) - 1,):
            raise ValueError(f"pair_starts must be int32 [S], got {starts.dtype} {starts.shape}")
        if bool(((starts < 0) | (starts > cu[1:] - cu[:-1])).any()):
            raise ValueError("pair_starts must be 0 to the sequence's number of tokens")

    @property
    def num_sequences(self) -> int:
        return len(self.cu_seqlens) - 1

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def lengths(self) -> Int32Array:
        """int32 [S]: tokens of each sequence."""
        return self.cu_seqlens[1:] - self.cu_seqlens[:-1]

    @property
    def num_rows(self) -> int:
        return self.num_sequences if self.spans is None else len(self.spans.bounds)

    def rows_of(self, start: int, stop: int) -> tuple[int, int]:
        """First row of sequence `start`, and the row behind the last one of ``stop - 1``."""
        if self.spans is None:
            return start, stop
        return int(self.spans.cu_spans[start]), int(self.spans.cu_spans[stop])

    def sequence_of(self, row: int) -> int:
        """The sequence that gives row `row`."""
        if self.spans is None:
            return row
        return int(np.searchsorted(self.spans.cu_spans, row, side="right")) - 1

    def span_offsets(self) -> Int32Array:
        """int32 [R, 2]: start and stop of each span in `token_ids`. Only for a batch with spans."""
        assert self.spans is not None, "a batch without spans has no span offsets: a bug"
        starts = np.repeat(self.cu_seqlens[:-1], self.spans.counts)
        return self.spans.bounds + starts[:, None]

    def sequence(self, index: int) -> Int32Array:
        """int32 view of sequence `index`; no copy."""
        return self.token_ids[self.cu_seqlens[index] : self.cu_seqlens[index + 1]]

    def slice(self, start: int, stop: int) -> RaggedBatch:
        """Sequences start to stop (exclusive) as a batch that shares the token memory."""
        cu = self.cu_seqlens[start : stop + 1]
        starts = None if self.pair_starts is None else self.pair_starts[start:stop]
        spans = None
        if self.spans is not None:
            cu_spans = self.spans.cu_spans[start : stop + 1]
            spans = Spans(self.spans.bounds[cu_spans[0] : cu_spans[-1]], cu_spans - cu_spans[0])
        ids = self.token_ids[cu[0] : cu[-1]]
        return RaggedBatch(ids, cu - cu[0], spans=spans, pair_starts=starts)

    def select(self, indexes: Sequence[int] | NDArray[np.intp]) -> RaggedBatch:
        """The sequences of these indexes, in this order, as a batch of its own."""
        if self.spans is not None:
            return RaggedBatch.concatenate([self.slice(int(i), int(i) + 1) for i in indexes])
        made = RaggedBatch.from_sequences(self.sequence(int(i)) for i in indexes)
        if self.pair_starts is None:
            return made
        return RaggedBatch(
            made.token_ids, made.cu_seqlens, pair_starts=self.pair_starts[np.asarray(indexes)]
        )

    @staticmethod
    def from_lengths(
        token_ids: Int32Array, lengths: Int32Array, pair_starts: Int32Array | None = None
    ) -> RaggedBatch:
        """Batch from flat ids [T], lengths [S] whose sum is T, and the second texts' starts [S]."""
        cu = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(lengths, out=cu[1:])
        return RaggedBatch(token_ids, cu, pair_starts=pair_starts)

    @staticmethod
    def from_sequences(sequences: Iterable[Sequence[int] | Int32Array]) -> RaggedBatch:
        """Batch from one id sequence a row; the ids are copied."""
        arrays = [np.asarray(s, dtype=np.int32) for s in sequences]
        lengths = np.fromiter((len(a) for a in arrays), dtype=np.int32, count=len(arrays))
        ids = np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int32)
        return RaggedBatch.from_lengths(np.ascontiguousarray(ids, dtype=np.int32), lengths)

    @staticmethod
    def concatenate(batches: Sequence[RaggedBatch]) -> RaggedBatch:
        """The batches' sequences in order, as one batch (ids are copied unless there is one).

        If one of them has spans, the sequences of the others get one span each, the whole.
        """
        if len(batches) == 1:
            return batches[0]
        ids = np.concatenate([b.token_ids for b in batches])
        lengths = np.concatenate([b.lengths for b in batches])
        whole = RaggedBatch.from_lengths(ids, lengths, join_pair_starts(batches))
        if all(b.spans is None for b in batches):
            return whole
        parts = [Spans.whole(b.lengths) if b.spans is None else b.spans for b in batches]
        cu_spans = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(np.concatenate([part.counts for part in parts]), out=cu_spans[1:])
        spans = Spans(np.concatenate([part.bounds for part in parts]), cu_spans)
        return replace(whole, spans=spans)


def join_pair_starts(batches: Sequence[RaggedBatch]) -> Int32Array | None:
    """The batches' pair starts end to end; those of a batch without any are its lengths."""
    if all(b.pair_starts is None for b in batches):
        return None
    return np.concatenate([b.lengths if b.pair_starts is None else b.pair_starts for b in batches])
