"""Readers of line formats and text files: JSONL, CSV, TSV, plain lines, one text a file.

A reader scans its file once for rows and columns and then gives blocks of any ranges of rows. What
it cannot parse becomes a problem of that row; nothing is left out silently.
"""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import orjson
import pyarrow as pa

from hotbed.bulk.block import Block
from hotbed.bulk.columns import Columns, Inference, one_line
from hotbed.bulk.sources import Source
from hotbed.core.errors import invalid

BLOCK_ROWS = 1024
BLOCK_BYTES = 8 << 20
MARK_ROWS = 1 << 14
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".br": "brotli"}
_MAX_CSV_FIELD = 64 << 20

Ranges = Sequence[tuple[int, int]]
"""(first row, last + 1) within one source, rising, apart."""
Row = dict[str, Any] | str | None
"""A parsed row; why there is none; None for a blank line."""


class Reader(Protocol):
    """One source.

    Attributes:
        marks: byte offsets of the rows `MARK_ROWS`, 2 * `MARK_ROWS` and so on, known after a scan;
            empty: the file cannot be read from its middle, or needs none to be.
        fault: of the first row that cannot be parsed, with its line; known after a scan.
    """

    marks: Sequence[int]
    fault: str

    def scan(self, text: str) -> tuple[int, Columns]:
        """(rows, columns); `text` names the column that is embedded."""
        ...

    def blocks(self, columns: Columns, ranges: Ranges, first_row: int) -> Iterator[Block]:
        """Blocks of these rows, numbered from `first_row` for the source's own first."""
        ...


class RowReader(ABC):
    """Base of readers that parse a record at a time.

    Subclasses give the records, cheap to skip, and what each means. Those that can begin at a mark
    keep `position` at the first byte behind the record that they gave last.
    """

    position: int | None = None
    fault = ""

    def __init__(self, source: Source, marks: Sequence[int] = ()) -> None:
        self.source = source
        self.marks = marks

    @abstractmethod
    def records(self, position: int = 0) -> Iterator[Any]:
        """The records, in order, from the one at a mark's byte on."""

    @property
    def _is_compressed(self) -> bool:
        return _compression(self.source) is not None

    @abstractmethod
    def parse(self, index: int, record: Any) -> Row:
        """What record `index` means."""

    def size(self, record: Any) -> int:
        """Bytes that it takes, roughly."""
        return len(record)

    def scan(self, text: str) -> tuple[int, Columns]:
        """See `Reader`."""
        inference = Inference(text)
        num_rows = 0
        marks: list[int] = []
        records = enumerate(self.records())
        with named(self.source):
            while piece := list(islice(records, min(BLOCK_ROWS, MARK_ROWS - num_rows % MARK_ROWS))):
                rows = [self.parse(index, record) for index, record in piece]
                inference.add(row for row in rows if isinstance(row, dict))
                if not self.fault:
                    faults = (n for n, row in enumerate(rows, num_rows + 1) if isinstance(row, str))
                    if line := next(faults, 0):
                        self.fault = f"line {line}: {rows[line - 1 - num_rows]}"
                num_rows += len(piece)
                if num_rows % MARK_ROWS == 0 and self.position is not None:
                    marks.append(self.position)
        self.marks = marks
        return num_rows, inference.columns()

    def blocks(self, columns: Columns, ranges: Ranges, first_row: int) -> Iterator[Block]:
        """See `Reader`."""
        with named(self.source):
            yield from self._blocks(columns, ranges, first_row)

    def _blocks(self, columns: Columns, ranges: Ranges, first_row: int) -> Iterator[Block]:
        records = self.records()
        at = 0
        for start, stop in ranges:
            mark = min(start // MARK_ROWS, len(self.marks))
            if mark * MARK_ROWS > at:
                records, at = self.records(self.marks[mark - 1]), mark * MARK_ROWS
            next(islice(records, start - at, start - at), None)
            at = start
            rows: list[Row] = []
            sizes: list[int] = []
            for record in islice(records, stop - start):
                rows.append(self.parse(at, record))
                sizes.append(self.size(record))
                at += 1
                if len(rows) == BLOCK_ROWS or sum(sizes) >= BLOCK_BYTES:
                    yield columns.block(first_row + at - len(rows), rows, sizes)
                    rows, sizes = [], []
            if rows:
                yield columns.block(first_row + at - len(rows), rows, sizes)
            if at != stop:
                raise invalid(f"input {self.source.path} has become shorter since it was scanned")


class LineReader(RowReader):
    """A record a line; files that are not compressed can be begun at a mark."""

    def records(self, position: int = 0) -> Iterator[bytes]:
        """See `RowReader`."""
        if self._is_compressed:
            with _open(self.source) as file:
                yield from file
            return
        with open(self.source.path, "rb", buffering=1 << 20) as plain:
            self.position = plain.seek(position)
            for line in plain:
                self.position += len(line)
                yield line


class JsonLines(LineReader):
    """A JSON object a line."""

    def parse(self, index: int, record: bytes) -> Row:
        if not record.strip():
            return None
        try:
            row = orjson.loads(record.removeprefix(b"\xef\xbb\xbf") if index == 0 else record)
        except orjson.JSONDecodeError:
            return "the line is no valid JSON"
        return row if isinstance(row, dict) else "the line is no JSON object"


class Lines(LineReader):
    """A text a line, with the line's number as a column of its own."""

    def __init__(self, source: Source, text: str, marks: Sequence[int] = ()) -> None:
        super().__init__(source, marks)
        self._text = text

    def parse(self, index: int, record: bytes) -> Row:
        try:
            text = record.decode("utf-8-sig" if index == 0 else "utf-8")
        except UnicodeDecodeError:
            return "the line is no UTF-8"
        return {"line": index + 1, self._text: text.rstrip("\r\n")}


class Csv(RowReader):
    """CSV or TSV with a header; every column is a string, as CSV knows no types.

    A record whose quotes are wrong is broken; reading goes on with the line behind it. A quote that
    is never closed takes all lines to the end of the file.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._header: list[str] = []

    def records(self, position: int = 0) -> Iterator[list[str] | str]:
        """See `RowReader`; always from the beginning. A string says why there is no record."""
        # surrogateescape: bytes that are no UTF-8 spoil their own record only.
        with (
            _open(self.source) as raw,
            io.TextIOWrapper(raw, "utf-8-sig", "surrogateescape", newline="") as file,
        ):
            csv.field_size_limit(_MAX_CSV_FIELD)
            delimiter = "\t" if self.source.format == "tsv" else ","
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            try:
                self._header = next((fields for fields in reader if fields), [])
            except csv.Error as error:
                raise invalid(f"input {self.source.path}: the header: {error}") from None
            if len(set(self._header)) != len(self._header):
                raise invalid(f"input {self.source.path}: the header names a column twice")
            if _has_surrogate(self._header):
                raise invalid(f"input {self.source.path}: the header is no UTF-8")
            while True:
                first = reader.line_num + 1
                try:
                    record: list[str] | str = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    lines = f"lines {first} to {reader.line_num} of the file"
                    record = f"{lines} are no record of CSV: {error}"
                yield record

    def parse(self, index: int, record: list[str] | str) -> Row:
        if isinstance(record, str):
            return record
        if not record:
            return None
        if len(record) != len(self._header):
            return f"the record has {len(record)} fields, the header {len(self._header)}"
        if _has_surrogate(record):
            return "the record is no UTF-8"
        return dict(zip(self._header, record, strict=True))

    def size(self, record: list[str] | str) -> int:
        return sum(map(len, record))


class TextFile:
    """A whole file as one text, with its path as a column."""

    marks: Sequence[int] = ()
    fault = ""

    def __init__(self, source: Source) -> None:
        self._source = source

    def scan(self, text: str) -> tuple[int, Columns]:
        """See `Reader`."""
        return 1, Columns(pa.schema([("path", pa.string()), (text, pa.string())]), text)

    def blocks(self, columns: Columns, ranges: Ranges, first_row: int) -> Iterator[Block]:
        """See `Reader`."""
        for _ in ranges:
            row: Row
            with named(self._source), _open(self._source) as file:
                data = file.read()
            try:
                text = data.decode("utf-8-sig")
                row = {"path": self._source.path, columns.text: text}
            except UnicodeDecodeError:
                row = "the file is no UTF-8"
            yield columns.block(first_row, [row], [len(data)])


@contextmanager
def named(source: Source) -> Iterator[None]:
    """What cannot be read is said with the name of the file: damaged, cut off, gone."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise invalid(f"input {source.path}: {one_line(error)}") from None


def _has_surrogate(fields: Sequence[str]) -> bool:
    """Whether there were bytes that are no UTF-8; most fields are ASCII."""
    return any(
        "\ud800" <= char <= "\udfff" for field in fields if not field.isascii() for char in field
    )


def _compression(source: Source) -> str | None:
    return _COMPRESSIONS.get(Path(source.path).suffix.lower())


def _open(source: Source) -> io.BufferedReader:
    """The file's bytes, decompressed by its suffix."""
    stream = pa.input_stream(source.path, compression=_compression(source))
    return io.BufferedReader(stream, 1 << 20)
