"""Qdrant: float32 vectors with cosine distance, columns and fingerprint as payload."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from hotbed.bulk.columns import one_line
from hotbed.bulk.plain import rows_to_pylist
from hotbed.bulk.stores.store import FINGERPRINT, ID, MOST_CHARS, Rows, other_vectors
from hotbed.core.errors import ErrorCode, HotbedError, invalid
from hotbed.core.output import OutputDtype


class QdrantStore:
    """Implements `Store`.

    Args:
        url: of the server, or a folder for the client's local mode.
        table: name of the collection; made if it is not there.
        rows: that will be put.

    Raises:
        HotbedError: INVALID_INPUT for packed bits and columns of bytes, or if the collection holds
            other vectors; UNAVAILABLE if it cannot be reached.
    """

    def __init__(self, url: str, table: str, rows: Rows) -> None:
        recipe = rows.recipe
        if OutputDtype(recipe.dtype).is_packed:
            raise invalid("Qdrant takes numbers: embed without packed bits")
        for field in rows.schema:
            if _holds_bytes(field.type):
                raise invalid(
                    f"column {field.name!r} holds {field.type}, which no payload of Qdrant can be: "
                    "embed with --keep for the others"
                )
        self._table = table
        self._column = rows.vector_column
        self._fingerprint = recipe.fingerprint
        try:
            # The client's check of versions warns on a thread of its own, also of a server that is
            # not there.
            where = {"url": url, "check_compatibility": False} if "://" in url else {"path": url}
            client = QdrantClient(**where)
        except RuntimeError as error:  # another process has the folder
            raise HotbedError(ErrorCode.UNAVAILABLE, f"--url {url}: {error}") from None
        self._client: Any = client
        try:
            with _named():
                self._prepare(table, url, rows)
        except BaseException:
            client.close()
            raise

    def _prepare(self, table: str, url: str, rows: Rows) -> None:
        client, recipe = self._client, rows.recipe
        if not client.collection_exists(table):
            client.create_collection(
                table,
                vectors_config=models.VectorParams(
                    size=recipe.dimensions, distance=models.Distance.COSINE
                ),
            )
        vectors = client.get_collection(table).config.params.vectors
        if getattr(vectors, "size", None) != recipe.dimensions:
            raise other_vectors(table, url, rows)
        points, _ = client.scroll(table, limit=1, with_payload=[FINGERPRINT])
        if points and (points[0].payload or {}).get(FINGERPRINT) != recipe.fingerprint:
            raise other_vectors(table, url, rows)

    def put_part(self, first_id: int, end_id: int, batches: Iterable[Any]) -> None:
        """See `Store`."""
        for batch in batches:
            points = []
            for row in rows_to_pylist(batch):
                vector = [float(value) for value in row.pop(self._column)]
                number = row.pop(ID)
                payload = row | {FINGERPRINT: self._fingerprint}
                points.append(models.PointStruct(id=number, vector=vector, payload=payload))
            with _named():
                self._client.upsert(self._table, points, wait=True)

    def count(self) -> int:
        """See `Store`."""
        with _named():
            return int(self._client.count(self._table, exact=True).count)

    def close(self) -> None:
        """See `Store`: also a local folder's lock."""
        self._client.close()


@contextmanager
def _named() -> Iterator[None]:
    """What the server or the way to it refuses."""
    try:
        yield
    except ResponseHandlingException as error:
        raise HotbedError(ErrorCode.UNAVAILABLE, f"Qdrant: {one_line(error, MOST_CHARS)}") from None
    except UnexpectedResponse as error:
        passes = error.status_code is None or error.status_code >= 500 or error.status_code == 429
        said = f"Qdrant: status {error.status_code} {error.reason_phrase}"
        raise HotbedError(ErrorCode.UNAVAILABLE, said) if passes else invalid(said) from None


def _holds_bytes(kind: Any) -> bool:
    """Payloads are JSON."""
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(test(kind) for test in tests) or any(
        _holds_bytes(kind.field(i).type) for i in range(kind.num_fields)
    )
