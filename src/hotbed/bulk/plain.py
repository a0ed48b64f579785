"""Rows of Arrow as Python's own values, for JSON and for stores."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def to_pylist(array: Any) -> list[Any]:
    """Like Arrow's own, but nanoseconds, which Python's times have not, are cut instead of refused.

    pandas writes its times so.
    """
    kind = _in_microseconds(array.type)
    values: list[Any] = (array if kind == array.type else array.cast(kind, safe=False)).to_pylist()
    return values


def rows_to_pylist(batch: Any) -> list[dict[str, Any]]:
    """A record batch's rows."""
    columns = [to_pylist(column) for column in batch.columns]
    return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _in_microseconds(kind: Any) -> Any:
    """The type with every nanosecond in it as a microsecond."""

    def of(field: Any) -> Any:
        return field.with_type(_in_microseconds(field.type))

    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        kind = pa.timestamp("us", kind.tz)
    elif pa.types.is_time64(kind):
        kind = pa.time64("us")
    elif pa.types.is_duration(kind) and kind.unit == "ns":
        kind = pa.duration("us")
    elif pa.types.is_struct(kind):
        kind = pa.struct([of(kind.field(i)) for i in range(kind.num_fields)])
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_field, of(kind.item_field))
    elif pa.types.is_fixed_size_list(kind):
        kind = pa.list_(of(kind.value_field), kind.list_size)
    elif pa.types.is_list(kind):
        kind = pa.list_(of(kind.value_field))
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(of(kind.value_field))
    return kind
