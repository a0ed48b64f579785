"""Copies the vectors of a job into a vector store, through the store's own client.

Each row has an id that depends on its part and its place there alone, and rows are put by their
ids: what is pushed twice, or again after a kill, is there once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hotbed.bulk.search import files_of, manifests_of
from hotbed.bulk.stores.store import FINGERPRINT, ID, Rows, Store
from hotbed.core.errors import ErrorCode, HotbedError, invalid

StoreName = Literal["qdrant", "pgvector", "lancedb"]
_LOG = logging.getLogger("hotbed.bulk")
_BATCH_ROWS = 1024
_PAUSES_S = (1, 2, 4, 8, 16, 30, 30)
"""After which a part is put again where the connection was lost: a minute and a half, a restart."""
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
        HotbedError: INVALID_INPUT if a job in the folder is not finished or a part of it is gone,
            if the store holds vectors of another recipe, or if the client is not installed;
            UNAVAILABLE if the store cannot be reached, or is lost and does not come back.
    """
    manifests = manifests_of(folder)
    first = manifests[0]
    # Of all shares, also those that were never begun.
    missing = -(-sum(first.source_rows) // first.settings.rows_per_part)
    missing -= sum(len(manifest.parts) for manifest in manifests)
    if missing:
        raise invalid(f"{folder}: {missing} parts are not done yet; finish the job first")
    parts = files_of(folder, manifests)
    schema = pq.read_schema(folder / parts[min(parts)])
    for name in (ID, FINGERPRINT):
        if name in schema.names:
            raise invalid(f"the rows have a column {name!r}, which the store gives each row")
    with_ids = schema.insert(0, pa.field(ID, pa.int64(), nullable=False))
    rows = Rows(with_ids, first.settings.vector_column, first.recipe)
    opened = _open(store, url, table, rows)
    num_rows = 0
    try:
        for number in sorted(parts):
            file = folder / parts[number]
            first_id = number * _ROWS_A_PART
            for pause_s in (*_PAUSES_S, None):
                try:
                    batches = _batches(file, number, with_ids)
                    opened.put_part(first_id, first_id + _ROWS_A_PART, batches)
                    break
                except HotbedError as error:
                    if error.code is not ErrorCode.UNAVAILABLE or pause_s is None:
                        raise
                    _LOG.warning("%s; again in %g s", error.message, pause_s)
                    time.sleep(pause_s)
                    opened = _open_again(opened, lambda: _open(store, url, table, rows))
            num_rows += pq.read_metadata(file).num_rows
        return num_rows, opened.count()
    finally:
        opened.close()


def _open_again(lost: Store, connect: Callable[[], Store]) -> Store:
    """A new connection; where there is none yet, the lost one, which will fail once more."""
    try:
        opened = connect()
    except HotbedError as error:
        if error.code is not ErrorCode.UNAVAILABLE:
            raise
        return lost
    lost.close()
    return opened


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
