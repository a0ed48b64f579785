"""A quick look at a folder of vectors: exact search, a block of rows in memory at a time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hotbed.bulk.local import LocalModel, ModelOptions
from hotbed.bulk.manifest import Manifest, load_manifest
from hotbed.bulk.plain import rows_to_pylist
from hotbed.core.errors import invalid
from hotbed.core.output import OutputDtype

_BLOCK_ROWS = 8192


@dataclass(frozen=True, slots=True, order=True)
class Hit:
    """A row found.

    Attributes:
        score: cosine, or for packed bits 1 - 2 * (share of bits that differ).
        file: name of the part.
        row: its place in it.
        columns: all but the vector.
    """

    score: float
    file: str
    row: int
    columns: dict[str, Any]


def search(folder: Path, query: str, k: int, options: ModelOptions) -> list[Hit]:
    """The k rows nearest to the query, best first; equal ones in the order of the rows.

    Args:
        folder: of one or several jobs (`--shard`), finished or not.
        query: one text; gets the model's prompt for queries if it has one and `options` names
            no other.
        k: at least 1.
        options: device, type, prompt; what the vectors are is known from the job.

    Raises:
        HotbedError: INVALID_INPUT if the folder holds no vectors, or the model found here is not
            the one that made them.
    """
    if k < 1:
        raise invalid(f"k must be at least 1, got {k}", "k")
    manifests = manifests_of(folder)
    recipe = manifests[0].recipe
    model = LocalModel(options)
    if not model.makes(recipe, asked_of_server=manifests[0].settings.endpoint):
        raise invalid(
            f"the vectors in {folder} have fingerprint {recipe.fingerprint}; {options.model} as it "
            "is here, with this --dtype and --device, does not make such vectors"
        )
    vector = model.embed_one(query)
    dtype = OutputDtype(recipe.dtype)
    best: list[tuple[float, int, int]] = []  # (score, -number of part, -row): a heap of the best k
    parts = files_of(folder, manifests)
    column = manifests[0].settings.vector_column
    for number in sorted(parts):
        for first, rows in _blocks(folder / parts[number], column):
            scores = _scores(rows, vector, dtype)
            top = np.argsort(-scores, kind="stable")[:k]
            for index in top.tolist():
                item = (float(scores[index]), -number, -(first + index))
                if len(best) < k:
                    heapq.heappush(best, item)
                elif item > best[0]:
                    heapq.heapreplace(best, item)
    hits = []
    for score, number, row in sorted(best, reverse=True):
        columns = _row(folder / parts[-number], -row)
        columns.pop(column)
        hits.append(Hit(score, parts[-number], -row, columns))
    return hits


def model_of(folder: Path) -> ModelOptions:
    """The options that lead to the model of a folder's vectors, for a query.

    Raises:
        HotbedError: INVALID_INPUT if there are no vectors.
    """
    recipe = manifests_of(folder)[0].recipe
    return ModelOptions(
        model=recipe.model,
        input_type="query",
        dimensions=recipe.dimensions,
        output_dtype=recipe.dtype,
        normalize=recipe.normalize,
    )


def manifests_of(folder: Path) -> list[Manifest]:
    """Of all shares that have a finished part.

    Raises:
        HotbedError: INVALID_INPUT if there is none, or their recipes differ.
    """
    found = [load_manifest(path) for path in sorted(folder.glob("_manifest*.json"))]
    manifests = [manifest for manifest in found if manifest is not None and manifest.parts]
    if not manifests:
        raise invalid(f"{folder} holds no finished part of a job of hotbed embed --out")
    if len({m.recipe.fingerprint for m in manifests}) > 1:
        raise invalid(f"{folder} holds vectors of several recipes")
    return manifests


def files_of(folder: Path, manifests: Sequence[Manifest]) -> dict[int, str]:
    """File by number of each finished part.

    Raises:
        HotbedError: INVALID_INPUT naming one that is gone.
    """
    parts = {part.number: part.file for manifest in manifests for part in manifest.parts}
    for file in parts.values():
        if not (folder / file).exists():
            raise invalid(f"{folder} has lost {file}; --resume of its job makes it again")
    return parts


def _blocks(file: Path, column: str) -> Iterator[tuple[int, NDArray[Any]]]:
    """(number of the first row, rows [R, width]) of a part."""
    first = 0
    with pq.ParquetFile(file) as opened:
        for batch in opened.iter_batches(batch_size=_BLOCK_ROWS, columns=[column]):
            flat = batch.column(0).flatten().to_numpy(zero_copy_only=False)
            if batch.num_rows:
                yield first, flat.reshape(batch.num_rows, -1)
            first += batch.num_rows


def _row(file: Path, row: int) -> dict[str, Any]:
    """One row of a part; reads its row group only."""
    with pq.ParquetFile(file) as opened:
        for group in range(opened.num_row_groups):
            num_rows = opened.metadata.row_group(group).num_rows
            if row < num_rows:
                table = opened.read_row_group(group).slice(row, 1).combine_chunks()
                return rows_to_pylist(table)[0]
            row -= num_rows
    raise invalid(f"{file} is shorter than it was")


def _scores(rows: NDArray[Any], vector: NDArray[Any], dtype: OutputDtype) -> NDArray[np.float32]:
    if dtype.is_packed:
        differing = np.bitwise_count(rows.view(np.uint8) ^ vector.view(np.uint8)).sum(axis=1)
        scores: NDArray[np.float32] = 1 - 2 * differing.astype(np.float32) / (8 * rows.shape[1])
        return scores
    floats, query = rows.astype(np.float32), vector.astype(np.float32)
    lengths = np.linalg.norm(floats, axis=1) * np.linalg.norm(query)
    cosines: NDArray[np.float32] = floats @ query / np.maximum(lengths, np.float32(1e-12))
    return cosines
