"""Copies the vectors of a job into a vector store, through the store's own client.

Each row has an id that depends on its part and its place there alone, and rows are put by their
ids: what is pushed twice, or again after a kill, is there once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hotbed.bulk.search import manifests_of
from hotbed.bulk.stores.store import FINGERPRINT, ID, Rows, Store
from hotbed.core.errors import invalid

StoreName = Literal["qdrant", "pgvector", "lancedb"]
_BATCH_ROWS = 1024
_ROWS_A_PART = 1 << 32


def push(folder: Path, store: StoreName, url: str, table: str) -> tuple[int, int]:
    """Copy all rows of a finished job.

    Args:
        folder: what --out was.
        store: which client.
        url: where; see the store's own class.
        table: name of the table or collection; made if it is not there.

    Returns:
        (rows pushed, rows that are there now).

    Raises:
        HotbedError: INVALID_INPUT if a job in the folder is not finished, if the store holds
            vectors of another recipe, or if the client is not installed.
    """
    manifests = manifests_of(folder)
    first = manifests[0]
    parts = {part.number: part.file for manifest in manifests for part in manifest.parts}
    # Of all shares, also those that were never begun.
    missing = -(-sum(first.source_rows) // first.settings.rows_per_part) - len(parts)
    if missing:
        raise invalid(f"{folder}: {missing} parts are not done yet; finish the job first")
    schema = pq.read_schema(folder / parts[min(parts)])
    for name in (ID, FINGERPRINT):
        if name in schema.names:
            raise invalid(f"the rows have a column {name!r}, which the store gives each row")
    with_ids = schema.insert(0, pa.field(ID, pa.int64(), nullable=False))
    rows = Rows(with_ids, first.settings.vector_column, first.recipe)
    opened = _open(store, url, table, rows)
    num_rows = 0

    def batches(number: int) -> Iterator[Any]:
        nonlocal num_rows
        for batch in _batches(folder / parts[number], number, with_ids):
            num_rows += batch.num_rows
            yield batch

    try:
        for number in sorted(parts):
            opened.put_part(number * _ROWS_A_PART, (number + 1) * _ROWS_A_PART, batches(number))
        return num_rows, opened.count()
    finally:
        opened.close()


def _open(store: StoreName, url: str, table: str, rows: Rows) -> Store:
    try:
        match store:
            case "qdrant":
                from hotbed.bulk.stores.qdrant import QdrantStore  # noqa: PLC0415

                return QdrantStore(url, table, rows)
            case "pgvector":
                from hotbed.bulk.stores.pgvector import PgvectorStore  # noqa: PLC0415

                return PgvectorStore(url, table, rows)
            case "lancedb":
                from hotbed.bulk.stores.lancedb import LanceStore  # noqa: PLC0415

                return LanceStore(url, table, rows)
    except ModuleNotFoundError as error:
        raise invalid(f"--to {store} needs its client: pip install 'hotbed[{store}]'") from error


def _batches(file: Path, number: int, schema: Any) -> Iterator[Any]:
    """Record batches of the schema, whose first column is the ids."""
    at = number * _ROWS_A_PART
    with pq.ParquetFile(file) as opened:
        for batch in opened.iter_batches(batch_size=_BATCH_ROWS):
            ids = pa.array(np.arange(at, at + batch.num_rows, dtype=np.int64))
            yield pa.RecordBatch.from_arrays([ids, *batch.columns], schema=schema)
            at += batch.num_rows
