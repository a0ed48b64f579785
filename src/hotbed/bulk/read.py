"""From sources to windows: rows that are tokenised and computed together.

Where a window ends depends only on the rows from the beginning of its part on, so that a job that
was killed makes the same windows again, the same steps of them, and the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hotbed.bulk.arrow_readers import open_reader
from hotbed.bulk.block import Block
from hotbed.bulk.columns import Columns, join
from hotbed.bulk.sources import Source
from hotbed.bulk.unify import unify
from hotbed.core.errors import invalid

WINDOW_ROWS = 4096
"""Enough for full steps of near-equal lengths."""
WINDOW_BYTES = 32 << 20
"""Of rows with all their columns: a bound on memory where they are long."""


@dataclass(frozen=True)
class Corpus:
    """All inputs of a job, after one look at each.

    Attributes:
        sources: in order.
        num_rows: of each source.
        columns: of them all.
        marks: of each source, see `Reader`; none of a job that was begun without.
    """

    sources: Sequence[Source]
    num_rows: Sequence[int]
    columns: Columns
    marks: Sequence[Sequence[int]] = ()

    @property
    def total_rows(self) -> int:
        return sum(self.num_rows)

    def place(self, row: int) -> tuple[str, int]:
        """(path, number in it from 1) of a row."""
        ends = np.cumsum(self.num_rows)
        index = int(np.searchsorted(ends, row, side="right"))
        return self.sources[index].path, row - int(ends[index] - self.num_rows[index]) + 1

    def blocks(self, ranges: Sequence[tuple[int, int]]) -> Iterator[Block]:
        """Blocks of these ranges of rows (rising, apart), in order.

        Raises:
            HotbedError: INVALID_INPUT if a file is not what it was when it was scanned.
        """
        first_row = 0
        all_marks = self.marks or [()] * len(self.sources)
        for source, num_rows, marks in zip(self.sources, self.num_rows, all_marks, strict=True):
            here = [
                (max(a, first_row) - first_row, min(b, first_row + num_rows) - first_row)
                for a, b in ranges
                if max(a, first_row) < min(b, first_row + num_rows)
            ]
            if here:
                if Source.of(source.path, source.format) != source:
                    raise invalid(f"input {source.path} has changed since the job began")
                reader = open_reader(source, self.columns.text, marks)
                yield from reader.blocks(self.columns, here, first_row)
            first_row += num_rows


def scan(
    sources: Sequence[Source], text: str, *, keep: Sequence[str], vector_column: str
) -> Corpus:
    """Count rows and find columns; reads line formats through, of Parquet the footers.

    Raises:
        HotbedError: INVALID_INPUT as of `unify`, or for a file that cannot be read.
    """
    opened = [open_reader(source, text) for source in sources]
    scanned = [reader.scan(text) for reader in opened]
    with_rows = [columns for num_rows, columns in scanned if num_rows and len(columns.schema)]
    if not with_rows:
        for source, reader in zip(sources, opened, strict=True):
            if reader.fault:
                raise invalid(f"no row could be read: input {source.path}, {reader.fault}")
        raise invalid("the inputs hold no rows")
    columns = unify(with_rows, keep=keep, vector_column=vector_column)
    return Corpus(
        sources,
        [num_rows for num_rows, _ in scanned],
        columns,
        [reader.marks for reader in opened],
    )


@dataclass(frozen=True, slots=True)
class Window:
    """Rows of one part.

    Attributes:
        part: its number.
        rows: what was read.
        ends_part: whether it is the part's last.
    """

    part: int
    rows: Block
    ends_part: bool


def windows(corpus: Corpus, parts: Sequence[int], rows_per_part: int) -> Iterator[Window]:
    """The windows of these parts (rising); part p holds the rows from p * rows_per_part on."""
    total = corpus.total_rows
    ranges = [(p * rows_per_part, min((p + 1) * rows_per_part, total)) for p in parts]
    pieces: list[Block] = []
    num_rows = num_bytes = 0
    for block in corpus.blocks(ranges):
        rest = block
        while rest.num_rows:
            part = rest.first_row // rows_per_part
            part_end = min((part + 1) * rows_per_part, total)
            # The row that reaches the limit in bytes is the window's last.
            by_bytes = int(np.searchsorted(np.cumsum(rest.sizes), WINDOW_BYTES - num_bytes)) + 1
            by_rows = min(WINDOW_ROWS - num_rows, part_end - rest.first_row)
            take = min(by_bytes, by_rows, rest.num_rows)
            pieces.append(rest.slice(0, take))
            num_rows += take
            num_bytes += int(rest.sizes[:take].sum())
            ends_part = rest.first_row + take == part_end
            if ends_part or num_rows == WINDOW_ROWS or num_bytes >= WINDOW_BYTES:
                yield Window(part, join(pieces), ends_part)
                pieces, num_rows, num_bytes = [], 0, 0
            rest = rest.slice(take, rest.num_rows)
    assert not pieces, "a part without an end: this is a bug"
