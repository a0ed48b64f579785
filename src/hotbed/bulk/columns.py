"""The columns of a job: one Arrow schema for all inputs, found before the first row is embedded."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hotbed.bulk.block import Block, Problem

_MOST_LEVELS = 32


@dataclass(frozen=True)
class Columns:
    """Attributes:
    schema: of the rows that readers give; the text column is a string.
    text: name of the text column.
    as_json: columns whose values have no common type; kept as JSON text.
    """

    schema: Any
    text: str
    as_json: frozenset[str] = frozenset()

    def encode(self) -> dict[str, object]:
        """For the manifest."""
        schema = base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        return {"schema": schema, "text": self.text, "as_json": sorted(self.as_json)}

    @staticmethod
    def decode(encoded: dict[str, Any]) -> Columns:
        """Back from the manifest."""
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded["schema"])))
        return Columns(schema, encoded["text"], frozenset(encoded["as_json"]))

    def block(
        self,
        first_row: int,
        rows: Sequence[dict[str, Any] | str | None],
        num_bytes: Sequence[int],
    ) -> Block:
        """A block of parsed rows: a dict, the reason why there is none, or None for a blank line.

        Rows that do not fit the columns, or have no text, become problems. `num_bytes` says how
        large each is.
        """
        good: list[int] = []
        dicts: list[dict[str, Any]] = []
        problems: list[Problem] = []
        for place, row in enumerate(rows):
            fault = self._fault(row) if isinstance(row, dict) else row
            if fault is not None:
                problems.append(Problem(first_row + place, "broken", "skipped", fault))
            elif isinstance(row, dict):
                try:
                    dicts.append(self._with_json(row) if self.as_json else row)
                    good.append(place)
                except orjson.JSONEncodeError:
                    detail = "a value is nested too deeply"
                    problems.append(Problem(first_row + place, "broken", "skipped", detail))
        try:
            table = pa.RecordBatch.from_pylist(dicts, schema=self.schema)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            if len(rows) > 1:  # find the one at fault
                half = len(rows) // 2
                return join(
                    [
                        self.block(first_row, rows[:half], num_bytes[:half]),
                        self.block(first_row + half, rows[half:], num_bytes[half:]),
                    ]
                )
            # What Arrow says would quote the value.
            fault = f"a value does not fit its column ({type(error).__name__})"
            problems.append(Problem(first_row, "broken", "skipped", fault))
            good, dicts = [], []
            table = pa.RecordBatch.from_pylist([], schema=self.schema)
        sizes = np.zeros(len(rows), dtype=np.int64)
        sizes[good] = np.asarray(num_bytes, dtype=np.int64)[good]
        return Block(first_row, len(rows), table, np.array(good, dtype=np.int64), sizes, problems)

    def block_of_table(self, first_row: int, table: Any, row_bytes: int) -> Block:
        """A block of an Arrow record batch of one input; rows without text become problems.

        `row_bytes` is what a row takes on average, to which its own text is added.
        """
        columns = []
        for field in self.schema:
            at = table.schema.get_field_index(field.name)
            if at < 0:
                columns.append(pa.nulls(table.num_rows, field.type))
            else:
                columns.append(_decoded(table.column(at)).cast(field.type))
        made = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        texts = made.column(self.schema.get_field_index(self.text))
        is_null = texts.is_null().to_numpy(zero_copy_only=False)
        has_text = ~is_null & _is_utf8(texts)
        sizes = pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False)
        sizes = np.where(has_text, sizes + row_bytes, 0)
        problems = [
            Problem(
                first_row + place,
                "broken",
                "skipped",
                f"{self.text} is {'null' if is_null[place] else 'no UTF-8'}",
            )
            for place in np.flatnonzero(~has_text).tolist()
        ]
        if problems:
            made = made.filter(pa.array(has_text))
        good = np.flatnonzero(has_text).astype(np.int64)
        return Block(first_row, table.num_rows, made, good, sizes.astype(np.int64), problems)

    def _fault(self, row: dict[str, Any]) -> str | None:
        value = row.get(self.text)
        if isinstance(value, str):
            return None
        if value is None:
            return f"{self.text} is {'null' if self.text in row else 'missing'}"
        return f"{self.text} is no string but {type(value).__name__}"

    def _with_json(self, row: dict[str, Any]) -> dict[str, Any]:
        return row | {
            name: orjson.dumps(row[name]).decode()
            for name in self.as_json
            if row.get(name) is not None
        }


class Inference:
    """Finds the columns of rows that come as dicts, a chunk at a time."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._fields: dict[str, Any] = {}
        self._as_json: set[str] = set()

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Look at some rows."""
        values: dict[str, list[Any]] = {}
        for row in rows:
            for name, value in row.items():
                values.setdefault(name, []).append(value)
        for name, found in values.items():
            if name == self._text:
                self._fields[name] = pa.string()
            elif name not in self._as_json:
                self._merge(name, found)

    def _merge(self, name: str, values: list[Any]) -> None:
        try:
            kind = pa.array(values).type
            if name in self._fields:
                schemas = [pa.schema([(name, t)]) for t in (self._fields[name], kind)]
                kind = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            kind = None
        if kind is None or not _fits_parquet(kind):
            self._as_json.add(name)
            kind = pa.string()
        self._fields[name] = kind

    def columns(self) -> Columns:
        """What was found; a column without any value is a string."""
        fields = [
            (name, pa.string() if pa.types.is_null(kind) else kind)
            for name, kind in self._fields.items()
        ]
        return Columns(pa.schema(fields), self._text, frozenset(self._as_json))


def join(blocks: Sequence[Block]) -> Block:
    """Adjacent blocks as one."""
    first = blocks[0]
    table = pa.Table.from_batches([block.table for block in blocks]).combine_chunks()
    batches = table.to_batches() or [first.table]
    return Block(
        first_row=first.first_row,
        num_rows=sum(block.num_rows for block in blocks),
        table=batches[0],
        good=np.concatenate([b.good + (b.first_row - first.first_row) for b in blocks]),
        sizes=np.concatenate([block.sizes for block in blocks]),
        problems=[problem for block in blocks for problem in block.problems],
    )


def one_line(error: Exception, most_chars: int = 200) -> str:
    """What a library or the system says, for a message of ours."""
    return " ".join(str(error).split())[:most_chars]


def _decoded(column: Any) -> Any:
    return pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column


def _is_utf8(texts: Any) -> NDArray[np.bool_]:
    """Of each string, which files can hold without being any."""
    fine = np.ones(len(texts), dtype=np.bool_)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        for place, value in enumerate(texts):
            try:
                value.as_py()
            except UnicodeDecodeError:
                fine[place] = False
    return fine


def _fits_parquet(kind: Any, levels: int = 0) -> bool:
    """Whether Parquet can hold it: no struct without fields, and not nested without end."""
    if levels > _MOST_LEVELS or (pa.types.is_struct(kind) and kind.num_fields == 0):
        return False
    return all(_fits_parquet(kind.field(i).type, levels + 1) for i in range(kind.num_fields))
