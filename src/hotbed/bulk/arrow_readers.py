"""Readers of Parquet and Arrow files, and the choice of the reader that fits a source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hotbed.bulk.block import Block
from hotbed.bulk.columns import Columns, one_line
from hotbed.bulk.readers import (
    BLOCK_BYTES,
    BLOCK_ROWS,
    Csv,
    JsonLines,
    Lines,
    Ranges,
    Reader,
    TextFile,
    named,
)
from hotbed.bulk.sources import Source
from hotbed.core.errors import invalid


def open_reader(source: Source, text: str, marks: Sequence[int] = ()) -> Reader:
    """The reader for a source's format.

    Args:
        source: the file.
        text: names the column of formats without names.
        marks: of an earlier scan.
    """
    match source.format:
        case "jsonl":
            return JsonLines(source, marks)
        case "csv" | "tsv":
            return Csv(source)
        case "lines":
            return Lines(source, text, marks)
        case "text":
            return TextFile(source)
        case "parquet":
            return Parquet(source)
        case _:
            return ArrowFile(source)


class Parquet:
    """A Parquet file; row groups that are not needed are not read."""

    marks: Sequence[int] = ()
    fault = ""

    def __init__(self, source: Source) -> None:
        self._source = source

    def scan(self, text: str) -> tuple[int, Columns]:
        """See `Reader`; reads the footer only."""
        with self._open() as file:
            return file.metadata.num_rows, _columns(self._source, file.schema_arrow, text)

    def blocks(self, columns: Columns, ranges: Ranges, first_row: int) -> Iterator[Block]:
        """See `Reader`."""
        with named(self._source), self._open() as file:
            metadata = file.metadata
            names = [name for name in file.schema_arrow.names if name in columns.schema.names]
            group_start = 0
            for index in range(metadata.num_row_groups):
                group = metadata.row_group(index)
                wanted = _overlap(ranges, group_start, group_start + group.num_rows)
                if wanted:
                    row_bytes = max(1, group.total_byte_size // max(1, group.num_rows))
                    batches = file.iter_batches(
                        batch_size=max(1, min(BLOCK_ROWS, BLOCK_BYTES // row_bytes)),
                        row_groups=[index],
                        columns=names,
                    )
                    yield from _cut(batches, columns, wanted, group_start, first_row)
                group_start += group.num_rows

    def _open(self) -> Any:
        try:
            # Without pre_buffer a row group is read a page at a time, not as a whole.
            return pq.ParquetFile(self._source.path, pre_buffer=False, buffer_size=1 << 20)
        except (pa.ArrowException, OSError) as error:
            said = one_line(error)
            raise invalid(f"input {self._source.path} is no Parquet file: {said}") from None


class ArrowFile:
    """An Arrow IPC file or stream, such as Hugging Face datasets keep; mapped into memory."""

    marks: Sequence[int] = ()
    fault = ""

    def __init__(self, source: Source) -> None:
        self._source = source

    def scan(self, text: str) -> tuple[int, Columns]:
        """See `Reader`."""
        with named(self._source), ExitStack() as stack:
            schema, batches = self._open(stack)
            columns = _columns(self._source, schema, text)
            return sum(batch.num_rows for batch in batches), columns

    def blocks(self, columns: Columns, ranges: Ranges, first_row: int) -> Iterator[Block]:
        """See `Reader`."""
        with named(self._source), ExitStack() as stack:
            _, batches = self._open(stack)
            yield from _cut(batches, columns, ranges, 0, first_row)

    def _open(self, stack: ExitStack) -> tuple[Any, Iterator[Any]]:
        try:
            mapped = stack.enter_context(pa.memory_map(self._source.path))
            try:
                file = stack.enter_context(pa.ipc.open_file(mapped))
            except pa.ArrowInvalid:
                mapped.seek(0)
                stream = stack.enter_context(pa.ipc.open_stream(mapped))
                return stream.schema, iter(stream)
        except (pa.ArrowException, OSError) as error:
            said = one_line(error)
            raise invalid(f"input {self._source.path} is no Arrow file: {said}") from None
        return file.schema, (file.get_batch(i) for i in range(file.num_record_batches))


def _columns(source: Source, schema: Any, text: str) -> Columns:
    twice = [name for name, times in Counter(schema.names).items() if times > 1]
    if twice:
        raise invalid(f"input {source.path} has several columns {twice[0]!r}")
    return Columns(schema, text)


def _overlap(ranges: Ranges, start: int, stop: int) -> list[tuple[int, int]]:
    """The parts of the ranges that lie in start to stop."""
    return [(max(a, start), min(b, stop)) for a, b in ranges if max(a, start) < min(b, stop)]


def _cut(
    batches: Iterator[Any], columns: Columns, ranges: Ranges, at: int, first_row: int
) -> Iterator[Block]:
    """Blocks of the wanted rows; the first batch begins with row `at` of the source."""
    for batch in batches:
        row_bytes = batch.nbytes // max(1, batch.num_rows)
        for start, stop in _overlap(ranges, at, at + batch.num_rows):
            for piece in range(start, stop, BLOCK_ROWS):
                size = min(BLOCK_ROWS, stop - piece)
                rows = batch.slice(piece - at, size)
                yield columns.block_of_table(first_row + piece, rows, row_bytes)
        at += batch.num_rows
        if at >= ranges[-1][1]:
            return
