"""PostgreSQL with pgvector: a part is one transaction of binary COPY and upsert.

float32 and int8 become `vector`, float16 `halfvec`, packed bits `bit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import orjson
import pgvector
import psycopg
import pyarrow as pa
from numpy.typing import NDArray
from pgvector.psycopg import register_vector
from psycopg import sql
from psycopg.types.json import Jsonb

from hotbed.bulk.columns import one_line
from hotbed.bulk.plain import to_pylist
from hotbed.bulk.stores.store import FINGERPRINT, ID, MOST_CHARS, Rows, other_vectors
from hotbed.core.errors import ErrorCode, HotbedError, invalid
from hotbed.core.output import OutputDtype

_JSON = "jsonb"
_MAX_NAME_BYTES = 63
_PASSES = (
    psycopg.errors.AdminShutdown,
    psycopg.errors.CrashShutdown,
    psycopg.errors.CannotConnectNow,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
)
_INCOMING = sql.Identifier("hotbed_incoming")


class PgvectorStore:
    """Implements `Store`.

    Args:
        url: ``postgresql://user@host/database`` or any other connection string of libpq.
        table: ``name`` or ``schema.name``; made if it is not there.
        rows: that will be put.

    Raises:
        HotbedError: INVALID_INPUT if the server cannot be reached or has no pgvector, or if the
            table holds other columns or vectors.
    """

    def __init__(self, url: str, table: str, rows: Rows) -> None:
        self._table = sql.Identifier(*table.split("."))
        self._rows = rows
        self._types = {
            **{field.name: sql_type(field.type) for field in rows.schema},
            rows.vector_column: _vector_type(rows),
            FINGERPRINT: "text",
        }
        for name in self._types:
            if (num_bytes := len(name.encode())) > _MAX_NAME_BYTES:
                raise invalid(
                    f"column {name!r} has {num_bytes} bytes in its name, PostgreSQL's names hold "
                    f"{_MAX_NAME_BYTES}"
                )
        try:
            self._connection = psycopg.connect(url)
        except psycopg.Error as error:
            raise HotbedError(
                ErrorCode.UNAVAILABLE, f"--url: {one_line(error, MOST_CHARS)}"
            ) from None
        try:
            with self._connection.transaction():
                self._prepare(table, url.rpartition("@")[2])  # without user and password
            register_vector(self._connection)
        except psycopg.Error as error:
            refused = self._refused(error)
            self._connection.close()
            raise refused from None
        except BaseException:
            self._connection.close()
            raise

    def put_part(self, first_id: int, end_id: int, batches: Iterable[Any]) -> None:
        """See `Store`."""
        names = list(self._types)
        columns = sql.SQL(", ").join(map(sql.Identifier, names))
        news = sql.SQL(", ").join(
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(n)) for n in names if n != ID
        )
        copy_in = sql.SQL("copy {} ({}) from stdin (format binary)").format(_INCOMING, columns)
        upsert = sql.SQL(
            "insert into {} ({}) select {} from {} on conflict ({}) do update set {}"
        ).format(self._table, columns, columns, _INCOMING, sql.Identifier(ID), news)
        make = [
            (name, _maker(kind, self._rows.recipe.dtype)) for name, kind in self._types.items()
        ][:-1]
        try:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                cursor.execute(sql.SQL("truncate {}").format(_INCOMING))
                with cursor.copy(copy_in) as copy:
                    copy.set_types([kind.partition("(")[0] for kind in self._types.values()])
                    for batch in batches:
                        values = [maker(batch.column(name)) for name, maker in make]
                        for row in zip(*values, strict=True):
                            copy.write_row([*row, self._rows.recipe.fingerprint])
                cursor.execute(upsert)
        except psycopg.Error as error:
            raise self._refused(error) from None

    def count(self) -> int:
        """See `Store`."""
        query = sql.SQL("select count(*) from {}").format(self._table)
        with self._connection.cursor() as cursor:
            found = cursor.execute(query).fetchone()
        assert found is not None, "a count without a row: this is a bug"
        return int(found[0])

    def close(self) -> None:
        """See `Store`."""
        self._connection.close()

    def _refused(self, error: psycopg.Error) -> HotbedError:
        # The server's message names column and type; its detail would quote values.
        said = f"PostgreSQL: {error.diag.message_primary or one_line(error, MOST_CHARS)}"
        lost = self._connection.broken or isinstance(error, _PASSES)
        return HotbedError(ErrorCode.UNAVAILABLE, said) if lost else invalid(said)

    def _prepare(self, table: str, server: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute("create extension if not exists vector")
            fields = sql.SQL(", ").join(
                sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
                for name, kind in self._types.items()
            )
            cursor.execute(
                sql.SQL("create table if not exists {} ({}, primary key ({}))").format(
                    self._table, fields, sql.Identifier(ID)
                )
            )
            cursor.execute(
                "select attname, format_type(atttypid, atttypmod) from pg_attribute "
                "where attrelid = %s::regclass and attnum > 0 and not attisdropped",
                [self._table.as_string(cursor)],
            )
            there: dict[str, str] = dict(cursor.fetchall())
            if there != self._types:
                odd = sorted(dict(there.items() ^ self._types.items()))
                raise invalid(f"{table} on {server} has other columns or types: {', '.join(odd)}")
            first = sql.SQL("select {} from {} limit 1").format(
                sql.Identifier(FINGERPRINT), self._table
            )
            found = cursor.execute(first).fetchone()
            if found is not None and found[0] != self._rows.recipe.fingerprint:
                raise other_vectors(table, server, self._rows)
            cursor.execute(
                sql.SQL("create temporary table {} (like {})").format(_INCOMING, self._table)
            )


def sql_type(kind: Any) -> str:
    """PostgreSQL's type for an Arrow type, as its catalogue writes it; jsonb for what is nested."""
    if pa.types.is_dictionary(kind):
        return sql_type(kind.value_type)
    tests: list[tuple[Callable[[Any], bool], str]] = [
        (pa.types.is_boolean, "boolean"),
        (lambda t: pa.types.is_int8(t) or pa.types.is_uint8(t) or pa.types.is_int16(t), "smallint"),
        (lambda t: pa.types.is_uint16(t) or pa.types.is_int32(t), "integer"),
        (lambda t: pa.types.is_uint32(t) or pa.types.is_int64(t), "bigint"),
        (lambda t: pa.types.is_uint64(t) or pa.types.is_decimal(t), "numeric"),
        (lambda t: pa.types.is_float16(t) or pa.types.is_float32(t), "real"),
        (pa.types.is_float64, "double precision"),
        (lambda t: pa.types.is_string(t) or pa.types.is_large_string(t), "text"),
        (lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t), "bytea"),
        (pa.types.is_date, "date"),
        (
            lambda t: pa.types.is_timestamp(t) and t.tz is None,
            "timestamp without time zone",
        ),
        (pa.types.is_timestamp, "timestamp with time zone"),
    ]
    return next((name for fits, name in tests if fits(kind)), _JSON)


def _vector_type(rows: Rows) -> str:
    dtype = OutputDtype(rows.recipe.dtype)
    if dtype.is_packed:
        return f"bit({rows.recipe.dimensions})"
    kind = "halfvec" if dtype is OutputDtype.FLOAT16 else "vector"
    return f"{kind}({rows.recipe.dimensions})"


def _maker(kind: str, dtype: str) -> Callable[[Any], Iterable[Any]]:
    """From an Arrow array to what psycopg writes of it."""
    match kind.partition("(")[0]:
        case "vector":
            return lambda array: map(pgvector.Vector, _vectors(array).astype(np.float32))
        case "halfvec":
            return lambda array: map(pgvector.HalfVector, _vectors(array))
        case "bit":
            # int8 holds byte - 128.
            flip = np.uint8(0x80 if OutputDtype(dtype) is OutputDtype.BINARY else 0)
            return lambda array: (
                pgvector.Bit(row.tobytes()) for row in _vectors(array).view(np.uint8) ^ flip
            )
        case "jsonb":
            return lambda array: [None if v is None else Jsonb(v, _dumps) for v in to_pylist(array)]
        case _:
            return to_pylist


def _vectors(array: Any) -> NDArray[Any]:
    flat = array.flatten().to_numpy(zero_copy_only=False)
    rows: NDArray[Any] = flat.reshape(len(array), -1)
    return rows


def _dumps(value: object) -> bytes:
    return orjson.dumps(value, default=str)
