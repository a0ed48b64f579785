"""Rows of the fake engine: a hash of each sequence's token ids, in every recipe of the wire.

A token's vector is the row of the sequence up to and with that token; a sparse entry's weight is
made of the token id and how often it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotbed.core.model_info import ModelInfo
from hotbed.core.output import SPARSE_ENTRY, OutputDtype, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.rows import RowSet

FAKE_INFO = ModelInfo(
    name="fake",
    task="embed",
    architecture="fake",
    dimensions=32,
    max_tokens=512,
    vocab_size=30_000,
    pooling="mean",
    normalize=True,
    dtype="float32",
    device="fake",
    fingerprint="fake0000",
    outputs=(("dense", 32), ("tokens", 32), ("multi_vector", 16), ("sparse", 30_000)),
)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def expected_rows(
    sequences: RaggedBatch | Sequence[Sequence[int]],
    spec: OutputSpec | int = 0,
    *,
    info: ModelInfo = FAKE_INFO,
) -> NDArray[Any]:
    """What a fake engine of `info` answers: [S, row width] of the spec's dtype.

    Args:
        sequences: S sequences of token ids. A span's row is that of a sequence of its tokens alone,
            zeros without tokens.
        spec: output recipe, or only the number of dimensions (0: native).
        info: gives the native dimensions and whether rows are normalised by default.
    """
    batch = (
        sequences if isinstance(sequences, RaggedBatch) else RaggedBatch.from_sequences(sequences)
    )
    if isinstance(spec, int):
        spec = OutputSpec(dimensions=spec)
    rows = _rows(batch, info.dimensions)[:, : spec.dimensions or info.dimensions]
    if info.normalize if spec.normalize is None else spec.normalize:
        norms = np.sqrt(np.sum(rows.astype(np.float64) ** 2, axis=1, keepdims=True))
        rows = (rows / np.maximum(norms, 1e-12)).astype(np.float32)
    return np.ascontiguousarray(_quantize(rows, spec.dtype))


def expected_sets(
    sequences: RaggedBatch | Sequence[Sequence[int]], spec: OutputSpec, *, info: ModelInfo
) -> RowSet:
    """What a fake engine of `info` answers for one output of any kind, `also` left out."""
    batch = (
        sequences if isinstance(sequences, RaggedBatch) else RaggedBatch.from_sequences(sequences)
    )
    if spec.kind == "dense":
        return RowSet(expected_rows(batch, spec, info=info))
    if spec.kind == "sparse":
        return _sparse(batch)
    prefixes = [
        batch.sequence(i)[: n + 1]
        for i in range(batch.num_sequences)
        for n in range(len(batch.sequence(i)))
    ]
    width = spec.dimensions or info.widths[spec.kind]
    normalize = spec.kind == "multi_vector" if spec.normalize is None else spec.normalize
    dense = OutputSpec(width, spec.dtype, normalize)
    rows = expected_rows(RaggedBatch.from_sequences(prefixes), dense, info=info)
    return RowSet(rows, batch.lengths)


def _sparse(batch: RaggedBatch) -> RowSet:
    entries, counts = [], []
    for index in range(batch.num_sequences):
        tokens, times = np.unique(batch.sequence(index), return_counts=True)
        made = np.empty((len(tokens), 1), dtype=SPARSE_ENTRY)
        made["token"][:, 0] = tokens
        made["weight"][:, 0] = times + tokens / 65536
        entries.append(made)
        counts.append(len(made))
    return RowSet(np.concatenate(entries), np.array(counts, dtype=np.int32))


def _rows(batch: RaggedBatch, dimensions: int) -> NDArray[np.float32]:
    if batch.spans is None:
        return _hash_rows(batch, dimensions)
    spans = [batch.token_ids[start:stop] for start, stop in batch.span_offsets()]
    rows = np.zeros((len(spans), dimensions), dtype=np.float32)
    full = [i for i, span in enumerate(spans) if len(span)]
    if full:
        rows[full] = _hash_rows(RaggedBatch.from_sequences(spans[i] for i in full), dimensions)
    return rows


def _hash_rows(batch: RaggedBatch, dimensions: int) -> NDArray[np.float32]:
    """float32 [S, dimensions] in [-1, 1): a hash of ids and positions, expanded by splitmix64."""
    starts = batch.cu_seqlens[:-1]
    positions = np.arange(batch.num_tokens) - np.repeat(starts, batch.lengths)
    tokens = batch.token_ids.astype(np.uint64) << np.uint64(32) | positions.astype(np.uint64)
    keys = np.add.reduceat(_mix(tokens), starts)
    steps = np.arange(1, dimensions + 1, dtype=np.uint64) * _GOLDEN
    bits = _mix(keys[:, None] + steps[None, :]) >> np.uint64(40)
    return bits.astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _quantize(rows: NDArray[np.float32], dtype: OutputDtype) -> NDArray[Any]:
    """float32 rows as `dtype`, as `core.output` says."""
    out: NDArray[Any]
    if dtype is OutputDtype.INT8:
        largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True), np.float32(1e-12))
        scaled = rows / largest * np.float32(127)
        out = np.rint(scaled).astype(np.int8)
    elif dtype.is_packed:
        bits = np.packbits(rows >= 0, axis=1)
        out = bits if dtype is OutputDtype.UBINARY else (bits ^ np.uint8(0x80)).view(np.int8)
    else:
        out = np.asarray(rows, dtype=dtype.numpy)
    return out
