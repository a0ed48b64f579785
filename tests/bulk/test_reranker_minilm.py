"""Real encoder weights under a seeded head, against sentence-transformers' CrossEncoder.

No package carries a reranker. The default model's encoder with its own pooler and a random
classifier is one in all but what it has learned: real widths, real states, the real tokenizer.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from sentence_transformers import CrossEncoder

from hotbed import Reranker
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.defaults import DEFAULT_MODEL
from tests.support.checkpoints import edit_json, save_tensors

pytestmark = [pytest.mark.weights, pytest.mark.slow]

MAX_RELATIVE_ERROR = 1e-4
WORDS = (
    *("the", "wing", "flow", "of", "Paris", "is", "a", "capital", "heat", "layer", "and"),
    *("théorie", "首都", "[SEP]", "🙂", "x1.5"),
)
QUERIES = ("What is the capital of France?", "wing flutter at supersonic speed", "日本の首都 é 🙂")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = load_checkpoint(DEFAULT_MODEL).folder
    folder = tmp_path_factory.mktemp("minilm")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(source / name, folder / name)
    edit_json(
        folder / "config.json",
        architectures=["BertForSequenceClassification"],
        id2label={"0": "LABEL_0"},
        label2id={"LABEL_0": 0},
    )
    generator = np.random.default_rng(0)
    tensors = {f"bert.{n}": t for n, t in load_file(source / "model.safetensors").items()}
    tensors["classifier.weight"] = generator.standard_normal((1, 384)).astype(np.float32) / 4
    tensors["classifier.bias"] = np.array([0.1], dtype=np.float32)
    save_tensors(folder / "model.safetensors", tensors)
    return folder


def test_scores_equal_the_cross_encoders(folder: Path) -> None:
    rng = random.Random(0)
    pairs = [
        (query, " ".join(rng.choices(WORDS, k=length)))
        for length in (1, 2, 3, 8, 16, 17, 30, 60, 90, 120, 300, 700)
        for query in QUERIES
    ]
    theirs = CrossEncoder(str(folder), max_length=512)
    expected = theirs.predict(pairs)
    with Reranker(str(folder), num_threads=1) as reranker:
        assert reranker.info.max_tokens == 512
        found = reranker.predict(pairs)
        alone = np.array([reranker.predict(pair) for pair in pairs])
        ranked = reranker.rank(QUERIES[0], [document for _, document in pairs])
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(found, expected, rtol=MAX_RELATIVE_ERROR)
    np.testing.assert_allclose(alone, expected, rtol=MAX_RELATIVE_ERROR)
    theirs_ranked = theirs.rank(QUERIES[0], [document for _, document in pairs])
    np.testing.assert_allclose(
        [r.score for r in ranked], [r["score"] for r in theirs_ranked], rtol=MAX_RELATIVE_ERROR
    )
