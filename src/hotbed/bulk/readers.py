"""Readers of line formats and text files: JSONL, CSV, TSV, plain lines, one text a file.

A reader scans its file once for rows and columns and then gives blocks of any ranges of rows. What
it cannot parse becomes a problem of that row; nothing is left out silently.
"""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import orjson
import pyarrow as pa

from hotbed.bulk.block import Block
from hotbed.bulk.columns import Columns, Inference
from hotbed.bulk.sources import Source
from hotbed.core.errors import invalid

BLOCK_ROWS = 1024
BLOCK_BYTES = 8 << 20
_MAX_CSV_FIELD = 64 << 20

Ranges = Sequence[tuple[int, int]]
"""(first row, last + 1) within one source, rising, apart."""
Row = dict[str, Any] | str | None
"""A parsed row; why there is none; None for a blank line."""


class Reader(Protocol):
    """One source."""

    def scan(self, text: str) -> tuple[int, Columns]:
        """(rows, columns); `text` names the column that is embedded."""
        ...

    def blocks(self, columns: Columns, ranges: Ranges, first_row: int) -> Iterator[Block]:
        """Blocks of these rows, numbered from `first_row` for the source's own first."""
        ...


class RowReader(ABC):
    """Base of readers that parse a record at a time.

    Subclasses give the records, cheap to skip, and what each means.
    """

    def __init__(self, source: Source) -> None:
        self.source = source

    @abstractmethod
    def records(self) -> Iterator[Any]:
        """The records, in order."""

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
        records = enumerate(self.records())
        while piece := list(islice(records, BLOCK_ROWS)):
            rows = [self.parse(index, record) for index, record in piece]
            inference.add(row for row in rows if isinstance(row, dict))
            num_rows += len(piece)
        return num_rows, inference.columns()

    def blocks(self, columns: Columns, ranges: Ranges, first_row: int) -> Iterator[Block]:
        """See `Reader`."""
        records = self.records()
        at = 0
        for start, stop in ranges:
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


class JsonLines(RowReader):
    """A JSON object a line."""

    def records(self) -> Iterator[bytes]:
        with _open(self.source) as file:
            yield from file

    def parse(self, index: int, record: bytes) -> Row:
        if not record.strip():
            return None
        try:
            row = orjson.loads(record.removeprefix(b"\xef\xbb\xbf") if index == 0 else record)
        except orjson.JSONDecodeError:
            return "the line is no valid JSON"
        return row if isinstance(row, dict) else "the line is no JSON object"


class Lines(RowReader):
    """A text a line, with the line's number as a column of its own."""

    def __init__(self, source: Source, text: str) -> None:
        super().__init__(source)
        self._text = text

    def records(self) -> Iterator[bytes]:
        with _open(self.source) as file:
            yield from file

    def parse(self, index: int, record: bytes) -> Row:
        try:
            text = record.decode("utf-8-sig" if index == 0 else "utf-8")
        except UnicodeDecodeError:
            return "the line is no UTF-8"
        return {"line": index + 1, self._text: text.rstrip("\r\n")}


class Csv(RowReader):
    """CSV or TSV with a header; every column is a string, as CSV knows no types."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._header: list[str] = []

    def records(self) -> Iterator[list[str]]:
        # surrogateescape: bytes that are no UTF-8 spoil their own record only.
        with (
            _open(self.source) as raw,
            io.TextIOWrapper(raw, "utf-8-sig", "surrogateescape", newline="") as file,
        ):
            csv.field_size_limit(_MAX_CSV_FIELD)
            delimiter = "\t" if self.source.format == "tsv" else ","
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            try:
                self._header = next(reader, [])
                if len(set(self._header)) != len(self._header):
                    raise invalid(f"input {self.source.path}: the header names a column twice")
                yield from reader
            except csv.Error as error:
                raise invalid(
                    f"input {self.source.path}, line {reader.line_num}: {error}; what follows "
                    "cannot be read"
                ) from None

    def parse(self, index: int, record: list[str]) -> Row:
        if not record:
            return None
        if len(record) != len(self._header):
            return f"the record has {len(record)} fields, the header {len(self._header)}"
        if any("\ud800" <= char <= "\udfff" for field in record for char in _odd(field)):
            return "the record is no UTF-8"
        return dict(zip(self._header, record, strict=True))

    def size(self, record: list[str]) -> int:
        return sum(map(len, record))


class TextFile:
    """A whole file as one text, with its path as a column."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def scan(self, text: str) -> tuple[int, Columns]:
        """See `Reader`."""
        return 1, Columns(pa.schema([("path", pa.string()), (text, pa.string())]), text)

    def blocks(self, columns: Columns, ranges: Ranges, first_row: int) -> Iterator[Block]:
        """See `Reader`."""
        for _ in ranges:
            row: Row
            data = Path(self._source.path).read_bytes()
            try:
                text = data.decode("utf-8-sig")
                row = {"path": self._source.path, columns.text: text}
            except UnicodeDecodeError:
                row = "the file is no UTF-8"
            yield columns.block(first_row, [row], [len(data)])


def _odd(field: str) -> str:
    """The field if it may hold surrogates, else nothing: most fields are ASCII."""
    return "" if field.isascii() else field


def _open(source: Source) -> io.BufferedReader:
    """The file's bytes, decompressed by its suffix."""
    return io.BufferedReader(pa.input_stream(source.path, compression="detect"), 1 << 20)
