"""One schema for all inputs of a job: types that go together and that a part can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hotbed.bulk.columns import Columns, one_line
from hotbed.core.errors import invalid


def unify(parts: Sequence[Columns], *, keep: Sequence[str], vector_column: str) -> Columns:
    """One for all inputs.

    Raises:
        HotbedError: INVALID_INPUT if the text column or a kept one is in no input, if inputs have a
            column of the same name with types that do not go together, if an input column has the
            name of the vectors', or if a column has a type that cannot be kept.
    """
    text = parts[0].text
    try:
        schema = pa.unify_schemas(_alike(parts, text), promote_options="permissive")
    except pa.ArrowException as error:
        raise invalid(f"the inputs' columns do not go together: {one_line(error)}") from None
    names = ", ".join(repr(name) for name in schema.names) or "none"
    for name, option in [(text, "--text")] + [(name, "--keep") for name in keep]:
        if name not in schema.names:
            raise invalid(f"{option} {name!r}: no input has this column; there are {names}")
    kind = schema.field(text).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise invalid(f"--text {text!r}: the column holds {kind}, not strings")
    if keep:
        wanted = [name for name in schema.names if name in keep or name == text]
        schema = pa.schema([schema.field(name) for name in wanted])
    if vector_column in schema.names:
        raise invalid(
            f"the inputs have a column {vector_column!r}: give --vector-column another name"
        )
    for field in schema:
        _check_kept(field)
    as_json = frozenset().union(*(part.as_json for part in parts)) & frozenset(schema.names)
    return Columns(schema, text, as_json)


def _alike(parts: Sequence[Columns], text: str) -> list[Any]:
    """The parts' schemas, as far as they are to be alike before Arrow unifies their types.

    Views become plain strings and bytes, as do dictionaries where another part has none, and those
    of the text; what is missing in a part may be null.
    """
    of_name: dict[str, list[Any]] = {}
    for part in parts:
        for field in part.schema:
            of_name.setdefault(field.name, []).append(_plain(field.type))
    schemas = []
    for part in parts:
        fields = []
        for field in part.schema.remove_metadata():
            kinds = of_name[field.name]
            kind = _plain(field.type)
            if pa.types.is_dictionary(kind) and (
                field.name == text or not all(map(pa.types.is_dictionary, kinds))
            ):
                kind = _plain(kind.value_type)
            nullable = field.nullable or len(kinds) < len(parts)
            fields.append(field.with_type(kind).with_nullable(nullable))
        schemas.append(pa.schema(fields))
    return schemas


def _plain(kind: Any) -> Any:
    """The type in which a column is kept."""
    if pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def _check_kept(field: Any) -> None:
    """Refuse what no part could hold, before a model computes for it."""
    try:
        pa.nulls(0, field.type).take(pa.array([], pa.int64()))
        pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
    except pa.ArrowException:
        raise invalid(
            f"column {field.name!r} holds {field.type}, which cannot be kept: name those to keep "
            "with --keep"
        ) from None
