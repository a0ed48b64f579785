"""A short hash that says which recipe made a vector.

Two replicas with the same fingerprint give the same vectors for the same token ids, up to the
arithmetic of their devices. The tokenizer is not in it: text never reaches a replica.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hotbed.checkpoint.records import Checkpoint, TensorInfo

NUM_HEX_DIGITS = 16


def fingerprint(checkpoint: Checkpoint, dtype: str) -> str:
    """16 hex digits of SHA-256 over weights, configuration, pooling or head, limit and dtype.

    Depends on what the files hold, not on where they lie or what they are called; reads every byte
    of the weights, with the GIL released.

    Args:
        checkpoint: the model.
        dtype: the compute type, e.g. ``float32``.

    Raises:
        ValueError: if the checkpoint was loaded without its weights.
    """
    if not checkpoint.tensors:
        raise ValueError(f"no fingerprint: {checkpoint.name!r} was loaded without its weights")
    recipe: dict[str, object] = {
        "weights": sorted(_digest(file) for file in _files(checkpoint.tensors)),
        "family": checkpoint.family,
        "config": checkpoint.config,
        "pooling": checkpoint.pooling,
        "quantizer": checkpoint.quantizer,
        "max_tokens": checkpoint.max_tokens,
        "dtype": dtype,
    }
    if checkpoint.dense:
        recipe["dense"] = [
            (module.activation, [_digest(file) for file in _files(module.tensors)])
            for module in checkpoint.dense
        ]
    if checkpoint.multi_vector is not None:
        recipe["multi_vector"] = (
            checkpoint.multi_vector.normalize,
            checkpoint.multi_vector.skips_first,
            [(layer.activation, layer.residual) for layer in checkpoint.multi_vector.dense],
            sorted({_digest(f) for m in checkpoint.multi_vector.dense for f in _files(m.tensors)}),
        )
    if checkpoint.sparse is not None:
        sparse = checkpoint.sparse
        recipe["sparse"] = (
            msgspec.structs.replace(sparse, tensors={}),
            sorted(_digest(file) for file in _files(sparse.tensors)),
        )
    if checkpoint.head is not None:
        recipe["head"] = checkpoint.head
    encoded = msgspec.json.encode(recipe, order="deterministic")
    return hashlib.sha256(encoded).hexdigest()[:NUM_HEX_DIGITS]


def _files(tensors: Mapping[str, TensorInfo]) -> set[Path]:
    return {tensor.file for tensor in tensors.values()}


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
