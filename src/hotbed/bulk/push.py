"""Copies the vectors of a job into a vector store, through the store's own client.

Each row has an id that depends on its part and its place there alone, and rows are put by their
ids: what is pushed twice, or again after a kill, is there once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hotbed.bulk.manifest import Manifest
from hotbed.bulk.search import manifests_of
from hotbed.core.errors import invalid
from hotbed.core.output import OutputDtype

StoreName = Literal["qdrant"]
ID = "hotbed_id"
FINGERPRINT = "hotbed_fingerprint"
_BATCH_ROWS = 1024
_ROWS_A_PART = 1 << 32


class Store(Protocol):
    """A table or collection that is ready to take rows."""

    def put(self, batch: Any) -> None:
        """Insert or replace the rows of a record batch, by the ids in its column `ID`."""
        ...

    def count(self) -> int:
        """Rows that are there now."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


def push(folder: Path, store: StoreName, url: str, table: str) -> tuple[int, int]:
    """Copy all rows of a finished job.

    Args:
        folder: what --out was.
        store: which client.
        url: where: ``http://...``, or a folder for the client's local mode.
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
    if ID in schema.names:
        raise invalid(f"the rows have a column {ID!r}, which is the store's key")
    opened = _open(store, url, table, first)
    num_rows = 0
    try:
        for number in sorted(parts):
            for batch in _batches(folder / parts[number], number):
                opened.put(batch)
                num_rows += batch.num_rows
        return num_rows, opened.count()
    finally:
        opened.close()


def _open(store: StoreName, url: str, table: str, job: Manifest) -> Store:
    try:
        return QdrantStore(url, table, job)
    except ModuleNotFoundError as error:
        raise invalid(f"--to {store} needs its client: pip install 'hotbed[{store}]'") from error


def _batches(file: Path, number: int) -> Iterator[Any]:
    at = number * _ROWS_A_PART
    with pq.ParquetFile(file) as opened:
        for batch in opened.iter_batches(batch_size=_BATCH_ROWS):
            ids = pa.array(np.arange(at, at + batch.num_rows, dtype=np.int64))
            yield batch.add_column(0, ID, ids)
            at += batch.num_rows


class QdrantStore:
    """A Qdrant collection: numbers as float32, columns and fingerprint as payload, cosine."""

    def __init__(self, url: str, table: str, job: Manifest) -> None:
        from qdrant_client import QdrantClient, models  # noqa: PLC0415

        recipe = job.recipe
        if OutputDtype(recipe.dtype).is_packed:
            raise invalid("Qdrant takes numbers: embed without packed bits")
        self._models = models
        self._table = table
        self._column = job.settings.vector_column
        self._fingerprint = recipe.fingerprint
        client = QdrantClient(url=url) if "://" in url else QdrantClient(path=url)
        self._client: Any = client
        if not client.collection_exists(table):
            client.create_collection(
                table,
                vectors_config=models.VectorParams(
                    size=recipe.dimensions, distance=models.Distance.COSINE
                ),
            )
        points, _ = client.scroll(table, limit=1, with_payload=[FINGERPRINT])
        if points and (points[0].payload or {}).get(FINGERPRINT) != recipe.fingerprint:
            raise invalid(
                f"{table} in {url} holds other vectors than those of fingerprint "
                f"{recipe.fingerprint}"
            )

    def put(self, batch: Any) -> None:
        """See `Store`."""
        points = []
        for row in batch.to_pylist():
            vector = [float(value) for value in row.pop(self._column)]
            number = row.pop(ID)
            payload = row | {FINGERPRINT: self._fingerprint}
            points.append(self._models.PointStruct(id=number, vector=vector, payload=payload))
        self._client.upsert(self._table, points, wait=True)

    def count(self) -> int:
        """See `Store`."""
        return int(self._client.count(self._table, exact=True).count)

    def close(self) -> None:
        """See `Store`: also a local folder's lock."""
        self._client.close()
