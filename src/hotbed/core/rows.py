"""Rows whose number a sequence varies: token vectors and sparse entries."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotbed.core.ragged import Int32Array


@dataclass(frozen=True, slots=True)
class RowSet:
    """One output of several sequences.

    Attributes:
        rows: [n, row width], those of each sequence side by side, in the sequences' order.
        counts: int32 [S], rows of each sequence, n in all; None: one each.
    """

    rows: NDArray[Any]
    counts: Int32Array | None = None

    @property
    def num_sequences(self) -> int:
        return len(self.rows) if self.counts is None else len(self.counts)

    def offsets(self) -> NDArray[np.int64]:
        """int64 [S + 1]: where each sequence's rows begin, and n."""
        if self.counts is None:
            return np.arange(len(self.rows) + 1)
        offsets = np.zeros(len(self.counts) + 1, dtype=np.int64)
        np.cumsum(self.counts, out=offsets[1:])
        return offsets

    def slice(self, start: int, stop: int) -> RowSet:
        """Of sequences start to stop (exclusive); the rows are a view."""
        if self.counts is None:
            return RowSet(self.rows[start:stop])
        first = int(self.counts[:start].sum())
        counts = self.counts[start:stop]
        return RowSet(self.rows[first : first + int(counts.sum())], counts)

    def split(self) -> list[NDArray[Any]]:
        """The rows of each sequence, views [its count, row width]."""
        offsets = self.offsets().tolist()
        return [self.rows[a:b] for a, b in itertools.pairwise(offsets)]

    @staticmethod
    def concatenate(sets: Sequence[RowSet]) -> RowSet:
        """The sets' sequences in order, as one set; the rows are copied unless there is one."""
        if len(sets) == 1:
            return sets[0]
        rows = np.concatenate([one.rows for one in sets])
        counts = [one.counts for one in sets if one.counts is not None]
        if not counts:
            return RowSet(rows)
        assert len(counts) == len(sets), "sets of one output all have counts or none: a bug"
        return RowSet(rows, np.concatenate(counts))
