"""The whole path against sentence-transformers, module by module: tokenizer, model, pooling, Dense,
normalisation.

Tolerance as in tests/rose/test_parity.py. The checkpoints are seeded random ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, normalizers

from hotbed import Embedder
from tests.support.checkpoints import edit_json
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
    "t5 and a dense module, as sentence-t5": {
        "config": "t5",
        "tokenizer": "bpe with end",
        "dense": [(48, IDENTITY, False)],
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
        _assert_close(rows, expected)


@pytest.mark.parametrize("normalizer", [normalizers.NFC(), None])
def test_a_tokenizer_that_tells_cases_apart_gets_lower_case(
    normalizer: normalizers.Normalizer | None, tmp_path: Path
) -> None:
    """`do_lower_case` true was passed over."""
    folder = make_family(tmp_path / "m", "bert")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.normalizer = normalizer
    tokenizer.save(str(folder / "tokenizer.json"))
    texts = ["THE cat", "Hotbed IS fast", "the cat"]
    told_apart, lower_cased = (_both_rows(folder, texts, lower) for lower in (False, True))
    assert np.abs(told_apart[:2] - lower_cased[:2]).max() > 0.01
    np.testing.assert_allclose(told_apart[2], lower_cased[2], atol=1e-6)


def test_do_lower_case_false_leaves_an_uncased_tokenizer_uncased(tmp_path: Path) -> None:
    """It was switched the wrong way in vLLM: "Hello" became [UNK]."""
    folder = make_family(tmp_path / "m", "bert")
    first, second = (_both_rows(folder, ["THE cat", "the cat"], lower) for lower in (False, True))
    np.testing.assert_allclose(first[0], first[1], atol=1e-6)
    np.testing.assert_allclose(first, second, atol=1e-6)


def _both_rows(folder: Path, texts: list[str], do_lower_case: bool) -> NDArray[np.float32]:
    """Hotbed's, once they are found to be sentence-transformers'."""
    edit_json(folder / "sentence_bert_config.json", do_lower_case=do_lower_case)
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    with Embedder(str(folder), device="cpu", num_threads=1) as embedder:
        rows = embedder.embed(texts)
    _assert_close(rows, model.encode(texts))
    return rows


def _assert_close(rows: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    assert rows.shape == expected.shape
    norms = np.linalg.norm(expected, axis=1)
    cosine = (rows * expected).sum(1) / (np.linalg.norm(rows, axis=1) * norms)
    error = np.linalg.norm(rows - expected, axis=1) / norms
    assert cosine.min() >= 0.999999
    assert error.max() <= 1e-4
