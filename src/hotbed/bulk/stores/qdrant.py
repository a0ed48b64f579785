"""Qdrant: float32 vectors with cosine distance, columns and fingerprint as payload."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qdrant_client import QdrantClient, models

from hotbed.bulk.stores.store import FINGERPRINT, ID, Rows, other_vectors
from hotbed.core.errors import invalid
from hotbed.core.output import OutputDtype


class QdrantStore:
    """Implements `Store`.

    Args:
        url: of the server, or a folder for the client's local mode.
        table: name of the collection; made if it is not there.
        rows: that will be put.

    Raises:
        HotbedError: INVALID_INPUT for packed bits, or if the collection holds other vectors.
    """

    def __init__(self, url: str, table: str, rows: Rows) -> None:
        recipe = rows.recipe
        if OutputDtype(recipe.dtype).is_packed:
            raise invalid("Qdrant takes numbers: embed without packed bits")
        self._table = table
        self._column = rows.vector_column
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
            raise other_vectors(table, url, rows)

    def put_part(self, first_id: int, end_id: int, batches: Iterable[Any]) -> None:
        """See `Store`."""
        for batch in batches:
            points = []
            for row in batch.to_pylist():
                vector = [float(value) for value in row.pop(self._column)]
                number = row.pop(ID)
                payload = row | {FINGERPRINT: self._fingerprint}
                points.append(models.PointStruct(id=number, vector=vector, payload=payload))
            self._client.upsert(self._table, points, wait=True)

    def count(self) -> int:
        """See `Store`."""
        return int(self._client.count(self._table, exact=True).count)

    def close(self) -> None:
        """See `Store`: also a local folder's lock."""
        self._client.close()
