"""ROSE against `transformers` in fp32 on seeded random checkpoints.

Tolerance: two layers of fp32 with unit-scale states; a different order of the sums moves a row by
about 1e-6 of its norm. A wrong mask, position, scale or norm moves it by more than 1e-2 (the last
test holds that).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.engine import RoseEngine
from tests.rose.parity_models import MODELS, TRAINED, WINDOWS, WRONG
from tests.support.checkpoints import edit_json, make_bert, make_qwen3
from tests.support.families import as_gte, make_family

MIN_COSINE = 0.999999
MAX_RELATIVE_ERROR = 1e-4


def _reference(folder: Path, sequences: list[np.ndarray], pooling: str) -> np.ndarray:
    values = json.loads((folder / "config.json").read_text())
    model, loading = AutoModel.from_pretrained(
        folder,
        config=AutoConfig.for_model(**as_gte(values)),
        dtype=torch.float32,
        output_loading_info=True,
    )
    assert not loading["missing_keys"], "the reference has random weights of its own"
    model.eval()
    rows = []
    with torch.inference_mode():
        for ids in sequences:
            # transformers keeps a longer text's frequencies until a short one comes.
            model(input_ids=torch.zeros(1, 1, dtype=torch.long))
            states = model(input_ids=torch.from_numpy(ids)[None]).last_hidden_state[0]
            pooled = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pooling]
            rows.append(pooled.numpy())
    return np.stack(rows)


def _close(got: np.ndarray, expected: np.ndarray) -> bool:
    cosine = (got * expected).sum(1) / (
        np.linalg.norm(got, axis=1) * np.linalg.norm(expected, axis=1)
    )
    error = np.linalg.norm(got - expected, axis=1) / np.linalg.norm(expected, axis=1)
    return bool(cosine.min() >= MIN_COSINE and error.max() <= MAX_RELATIVE_ERROR)


@pytest.mark.parametrize("name", MODELS)
def test_rows_equal_transformers(name: str, tmp_path: Path) -> None:
    make, options = MODELS[name]
    folder = make(tmp_path / "m", **options)
    checkpoint = load_checkpoint(str(folder))
    engine = RoseEngine.load(checkpoint, num_threads=1)
    limit = engine.info.max_tokens
    random = np.random.default_rng(0)
    # What one side sees and what both see, one token less and one more.
    reach = TRAINED[name] - 1 if name in TRAINED else WINDOWS.get(name, 16)
    around = [n + d for n in (reach + 1, 2 * reach + 1) for d in (-1, 0, 1)]
    # transformers' RoBERTa looks for pad ids in the text to find positions, so none is in it.
    sequences = [
        random.integers(5, engine.info.vocab_size, n)
        for n in (1, 2, limit - 1, limit, *around, *around, limit // 2, 1)
    ]
    expected = _reference(folder, sequences, engine.info.pooling)
    raw = OutputSpec(normalize=False)

    def rows(some: list[np.ndarray]) -> np.ndarray:
        batch = RaggedBatch.from_sequences(some)
        return engine.step(batch, [OutputSegment(0, len(some), raw)]).wait().rows[0]

    assert _close(rows(sequences), expected), "in a mixed batch"
    assert _close(np.concatenate([rows([s]) for s in sequences]), expected), "alone"
    order = random.permutation(len(sequences))
    assert _close(rows([sequences[i] for i in order]), expected[order]), "permuted"
    engine.close()


@pytest.mark.parametrize(("config", "options", "changes"), WRONG)
def test_a_field_that_is_misread_shows(
    config: str, options: dict[str, Any], changes: dict[str, Any], tmp_path: Path
) -> None:
    """A window one token off or a wrong base is far outside the tolerance."""
    folder = make_family(tmp_path / "m", config, **options)
    sequences = [np.random.default_rng(0).integers(5, 200, 90)]
    expected = _reference(folder, sequences, "mean")
    edit_json(folder / "config.json", **changes)
    engine = RoseEngine.load(load_checkpoint(str(folder)), num_threads=1)
    raw = [OutputSegment(0, 1, OutputSpec(normalize=False))]
    got = engine.step(RaggedBatch.from_sequences(sequences), raw).wait().rows[0]
    assert not _close(got, expected)
    engine.close()


@pytest.mark.parametrize("make", [make_bert, make_qwen3], ids=["bert", "qwen3"])
def test_the_tolerance_would_catch_a_wrong_model(make: Any, tmp_path: Path) -> None:
    """One layer fewer, or another mask, is far outside what the parity test allows."""
    folder = make(tmp_path / "right")
    other = (
        make_qwen3(tmp_path / "wrong", causal=False, pooling="last")
        if make is make_qwen3
        else make_bert(tmp_path / "wrong", layers=1)
    )
    sequences = [np.arange(1, 20)]
    right, wrong = (_reference(f, sequences, "last") for f in (folder, other))
    assert not _close(wrong, right)
