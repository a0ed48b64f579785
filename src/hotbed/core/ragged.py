"""The ragged batch: sequences of token ids laid end to end, with offsets and no padding.

The one currency from Ivy to the kernels. Legend: T tokens in all, S sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class RaggedBatch:
    """S sequences of int32 token ids, laid end to end.

    Attributes:
        token_ids: int32 [T], C-contiguous.
        cu_seqlens: int32 [S + 1], starts at 0, never decreases, ends at T; sequence i is
            ``token_ids[cu_seqlens[i]:cu_seqlens[i + 1]]``.
        pair_starts: int32 [S], or None. Sequence i holds two texts, and its tokens from
            ``pair_starts[i]`` on (counted from its start; its length: there are none) belong to
            the second, for models with a token type for it. None: no sequence has a second text,
            or the model makes no difference.

    The arrays are not copied: who builds the batch promises not to write to them afterwards.

    Raises:
        ValueError: on a wrong dtype, shape or offset.
    """

    token_ids: Int32Array
    cu_seqlens: Int32Array
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

    def sequence(self, index: int) -> Int32Array:
        """int32 view of sequence `index`; no copy."""
        return self.token_ids[self.cu_seqlens[index] : self.cu_seqlens[index + 1]]

    def slice(self, start: int, stop: int) -> RaggedBatch:
        """Sequences start to stop (exclusive) as a batch that shares the token memory."""
        cu = self.cu_seqlens[start : stop + 1]
        starts = None if self.pair_starts is None else self.pair_starts[start:stop]
        return RaggedBatch(self.token_ids[cu[0] : cu[-1]], cu - cu[0], pair_starts=starts)

    def select(self, indexes: Sequence[int] | NDArray[np.intp]) -> RaggedBatch:
        """The sequences of these indexes, in this order, as a batch of its own."""
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
        """The batches' sequences in order, as one batch (ids are copied unless there is one)."""
        if len(batches) == 1:
            return batches[0]
        ids = np.concatenate([b.token_ids for b in batches])
        lengths = np.concatenate([b.lengths for b in batches])
        return RaggedBatch.from_lengths(ids, lengths, join_pair_starts(batches))


def join_pair_starts(batches: Sequence[RaggedBatch]) -> Int32Array | None:
    """The batches' pair starts end to end; those of a batch without any are its lengths."""
    if all(b.pair_starts is None for b in batches):
        return None
    return np.concatenate([b.lengths if b.pair_starts is None else b.pair_starts for b in batches])
