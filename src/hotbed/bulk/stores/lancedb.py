"""LanceDB: a folder (or a bucket that it knows) with the rows as they are, vectors searchable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import lancedb
import pyarrow as pa

from hotbed.bulk.columns import one_line
from hotbed.bulk.recipe import METADATA_KEY
from hotbed.bulk.stores.store import ID, Rows, other_vectors
from hotbed.core.errors import invalid


class LanceStore:
    """Implements `Store`. The recipe lies in the metadata of the table's schema.

    Args:
        url: folder, or ``s3://...`` and the like.
        table: name of the table; made if it is not there.
        rows: that will be put.

    Raises:
        HotbedError: INVALID_INPUT if the table holds other columns or vectors.
    """

    def __init__(self, url: str, table: str, rows: Rows) -> None:
        self._schema = rows.schema
        connection = lancedb.connect(url)
        self._table: Any
        try:
            self._table = connection.open_table(table)
        except (FileNotFoundError, ValueError):
            try:
                self._table = connection.create_table(table, schema=rows.schema)
            except RuntimeError as error:  # Lance's own; its second line tells where in its code
                raise invalid(f"LanceDB cannot make {table}: {one_line(error)}") from None
        there = self._table.schema
        if (there.metadata or {}).get(METADATA_KEY) != rows.schema.metadata[METADATA_KEY]:
            raise other_vectors(table, url, rows)
        # Types of lists differ in the names of their items; what does not fit Lance refuses.
        if odd := sorted(set(there.names) ^ set(rows.schema.names)):
            raise invalid(f"{table} in {url} has other columns: {', '.join(odd)}")

    def put_part(self, first_id: int, end_id: int, batches: Iterable[Any]) -> None:
        """See `Store`: what is there of the part goes, then it comes as a whole."""
        here = f"{ID} >= {first_id} and {ID} < {end_id}"
        if self._table.count_rows(here):
            self._table.delete(here)
        self._table.add(pa.RecordBatchReader.from_batches(self._schema, iter(batches)))

    def count(self) -> int:
        """See `Store`."""
        return int(self._table.count_rows())

    def close(self) -> None:
        """See `Store`."""
