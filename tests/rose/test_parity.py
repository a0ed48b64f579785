"""ROSE against `transformers` in fp32 on seeded random checkpoints.

Tolerance: two layers of fp32 with unit-scale states; a different order of the sums moves a row by
about 1e-6 of its norm. A wrong mask, position, scale or norm moves it by more than 1e-2 (the last
test holds that).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.engine import RoseEngine
from tests.rose.parity_models import MODELS, TRAINED, WINDOWS, WRONG
from tests.support import jina_bert
from tests.support.checkpoints import edit_json, make_bert, make_qwen3
from tests.support.families import as_known, encoder_class, make_family

MIN_COSINE = 0.999999
MAX_RELATIVE_ERROR = 1e-4


def _reference(folder: Path, sequences: list[np.ndarray], pooling: str) -> np.ndarray:
    values = json.loads((folder / "config.json").read_text())
    if values["architectures"] == [jina_bert.CLASS_NAME]:
        return np.stack([_pooled(jina_bert.states(folder, ids), pooling) for ids in sequences])
    model, loading = encoder_class(values).from_pretrained(
        folder,
        config=AutoConfig.for_model(**as_known(values)),
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
            rows.append(_pooled(states, pooling))
    return np.stack(rows)


def _pooled(states: torch.Tensor, pooling: str) -> np.ndarray:
    row: torch.Tensor = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pooling]
    return row.numpy()


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


def test_jinas_names_of_xlm_r_are_the_same_model(tmp_path: Path) -> None:
    """jina-reranker-v2 has XLM-R's type and fields, and the names of its own code."""
    folders = [make_family(tmp_path / name, "xlm-roberta", sharded=False) for name in "ab"]
    tensors = load_file(folders[1] / "model.safetensors")
    parts: dict[str, list[torch.Tensor]] = {}
    for name in sorted(tensors, key=lambda n: (".value." in n, ".key." in n)):
        parts.setdefault(_jinas_name(name), []).append(tensors[name])
    made = {f"roberta.{name}": torch.cat(some) for name, some in parts.items()}
    assert len(made) < len(tensors)
    save_file(made, folders[1] / "model.safetensors")
    code = "jinaai/xlm-roberta-flash-implementation--modeling_xlm_roberta.XLMRobertaModel"
    edit_json(folders[1] / "config.json", auto_map={"AutoModel": code}, use_flash_attn=True)
    batch = RaggedBatch.from_sequences([np.arange(5, 5 + n) for n in (1, 7, 96)])
    rows = []
    for folder in folders:
        engine = RoseEngine.load(load_checkpoint(str(folder)), num_threads=1)
        segment = OutputSegment(0, 3, OutputSpec(normalize=False))
        rows.append(engine.step(batch, [segment]).wait().rows[0])
        engine.close()
    np.testing.assert_array_equal(rows[0], rows[1])


def _jinas_name(name: str) -> str:
    for old, new in (
        ("embeddings.LayerNorm", "emb_ln"),
        ("encoder.layer.", "encoder.layers."),
        ("attention.output.dense", "mixer.out_proj"),
        ("attention.output.LayerNorm", "norm1"),
        ("intermediate.dense", "mlp.fc1"),
        ("output.dense", "mlp.fc2"),
        ("output.LayerNorm", "norm2"),
    ):
        name = name.replace(old, new)
    return re.sub(r"attention\.self\.(query|key|value)", "mixer.Wqkv", name)


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
