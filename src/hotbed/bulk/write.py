"""Writes a part: the kept columns and the vectors, one Parquet row group a window."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hotbed.bulk.durable import DurableFile
from hotbed.bulk.recipe import METADATA_KEY, Recipe

CHUNK_COLUMNS = ("chunk", "chunk_start", "chunk_stop")
"""Number of the part of a text, its first character and its last + 1."""


def output_schema(
    columns: Any, recipe: Recipe, numpy_dtype: np.dtype[Any], width: int, *, name: str, chunks: bool
) -> Any:
    """Arrow schema of a part: input columns, places of chunks, vectors as fixed-size lists.

    The recipe lies in the metadata of the file, its fingerprint also in that of the column.
    """
    fields = [columns.field(i) for i in range(len(columns))]
    if chunks:
        fields += [pa.field(column, pa.int64(), nullable=False) for column in CHUNK_COLUMNS]
    kind = pa.list_(pa.field("item", pa.from_numpy_dtype(numpy_dtype), nullable=False), width)
    metadata = {"hotbed.fingerprint": recipe.fingerprint}
    fields.append(pa.field(name, kind, nullable=False, metadata=metadata))
    return pa.schema(fields, metadata={METADATA_KEY: msgspec.json.encode(recipe)})


class PartWriter:
    """One Parquet file. Memory: a row group."""

    def __init__(self, path: Path, schema: Any) -> None:
        self.num_rows = 0
        self._schema = schema
        self._file = DurableFile(path)
        names = schema.names[:-1]
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._file, mode="w"),
            schema,
            compression="zstd",
            compression_level=1,
            # Vectors do not repeat, and their smallest number says nothing.
            use_dictionary=names or False,
            write_statistics=names or False,
        )

    def write(self, table: Any, spans: NDArray[np.int64] | None, rows: NDArray[Any]) -> None:
        """Append a row group.

        Args:
            table: record batch of the input columns, R rows.
            spans: int64 [R, 3] if the schema has chunks.
            rows: [R, width].
        """
        if not len(rows):
            return
        arrays = list(table.columns)
        if spans is not None:
            arrays += [pa.array(np.ascontiguousarray(spans[:, i])) for i in range(3)]
        flat = pa.array(rows.reshape(-1))
        arrays.append(pa.FixedSizeListArray.from_arrays(flat, type=self._schema.field(-1).type))
        self._writer.write_batch(
            pa.RecordBatch.from_arrays(arrays, schema=self._schema), row_group_size=len(rows)
        )
        self.num_rows += len(rows)

    def commit(self) -> tuple[str, int]:
        """Finish the file and give it its name; (SHA-256, bytes)."""
        self._writer.close()
        return self._file.commit(), self._file.size

    def discard(self) -> None:
        """Leave nothing behind; also where the disk is full, which closing would find once more."""
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._file.discard()
