"""The whole path against sentence-transformers, module by module: tokenizer, model, pooling, Dense,
normalisation.

Tolerance as in tests/rose/test_parity.py. The checkpoints are seeded random ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from hotbed import Embedder
from tests.support.families import make_family

TEXTS = [
    "a",
    "the cat is not in the house",
    "token " * 40,
    "a document of the search",
    "Hotbed!",
]
TANH, IDENTITY, GELU = "activation.Tanh", "linear.Identity", "activation.GELU"
MODELS: dict[str, dict[str, Any]] = {
    "bert": {"config": "bert", "prefix": "bert.", "pooling": "cls"},
    "xlm-roberta": {"config": "xlm-roberta", "prefix": "roberta."},
    "dense with tanh and bias, as LaBSE": {
        "config": "bert",
        "pooling": "cls",
        "dense": [(128, TANH, True)],
    },
    "modernbert": {"config": "modernbert", "pooling": "cls"},
    "llama": {"config": "llama", "tokenizer": "bpe with end", "pooling": "last"},
    "gemma3 and two dense modules, as EmbeddingGemma": {
        "config": "gemma3_text",
        "tokenizer": "bpe with end",
        "dense": [(512, IDENTITY, False), (64, IDENTITY, False)],
    },
    "dense, not normalised": {"config": "bert", "dense": [(48, GELU, True)], "normalize": False},
}


@pytest.mark.parametrize("name", MODELS)
def test_rows_equal_sentence_transformers(name: str, tmp_path: Path) -> None:
    folder = str(make_family(tmp_path / "m", **MODELS[name]))
    expected = SentenceTransformer(folder, device="cpu", local_files_only=True).encode(TEXTS)
    with Embedder(folder, device="cpu", num_threads=1) as embedder:
        got = embedder.embed(TEXTS)
        alone = np.stack([embedder.embed(text) for text in TEXTS])
        assert embedder.info.dimensions == expected.shape[1]
    for rows in (got, alone):
        assert rows.shape == expected.shape
        norms = np.linalg.norm(expected, axis=1)
        cosine = (rows * expected).sum(1) / (np.linalg.norm(rows, axis=1) * norms)
        error = np.linalg.norm(rows - expected, axis=1) / norms
        assert cosine.min() >= 0.999999
        assert error.max() <= 1e-4
