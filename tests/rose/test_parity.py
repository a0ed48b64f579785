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
from tests.support.checkpoints import edit_json, make_bert, make_qwen3
from tests.support.families import as_gte, make_family

MIN_COSINE = 0.999999
MAX_RELATIVE_ERROR = 1e-4

BPE = {"tokenizer": "bpe"}
# Of 48 tokens in training, to 96 and more; with the factors that Llama 3.1 and Qwen3 state.
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 48,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 48}
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "bert mean": (make_bert, {"pooling": "mean"}),
    "bert cls": (make_bert, {"pooling": "cls"}),
    "bert gelu_new": (make_bert, {"hidden_act": "gelu_new"}),
    "bert relu": (make_bert, {"hidden_act": "relu"}),
    "qwen3 causal last": (make_qwen3, {"causal": True}),
    "qwen3 bidirectional mean": (make_qwen3, {"causal": False}),
    "qwen3 head dim 128": (make_qwen3, {"head_dim": 128, "layers": 1}),
    "bert. prefix": (make_family, {"config": "bert", "prefix": "bert.", "pooling": "cls"}),
    "roberta": (make_family, {"config": "roberta", "prefix": "roberta."}),
    "xlm-roberta cls": (make_family, {"config": "xlm-roberta", "pooling": "cls"}),
    "xlm-roberta pad id 3": (make_family, {"config": "xlm-roberta", "pad_token_id": 3}),
    "camembert": (make_family, {"config": "camembert", "prefix": "roberta."}),
    "distilbert": (make_family, {"config": "distilbert"}),
    "distilbert prefix": (
        make_family,
        {"config": "distilbert", "prefix": "distilbert.", "pooling": "cls"},
    ),
    "mpnet": (make_family, {"config": "mpnet"}),
    "mpnet prefix": (make_family, {"config": "mpnet", "prefix": "mpnet.", "pooling": "cls"}),
    "modernbert": (make_family, {"config": "modernbert", "prefix": "model."}),
    "modernbert cls": (make_family, {"config": "modernbert", "pooling": "cls"}),
    "qwen2 causal last": (make_family, BPE | {"config": "qwen2", "pooling": "last"}),
    "qwen2 bidirectional, as gte-Qwen2": (
        make_family,
        BPE | {"config": "qwen2", "is_causal": False, "pooling": "last", "prefix": "model."},
    ),
    "llama last": (make_family, BPE | {"config": "llama", "pooling": "last", "prefix": "model."}),
    "llama bidirectional mean": (make_family, BPE | {"config": "llama", "is_causal": False}),
    "llama without groups, head dim 128": (
        make_family,
        BPE | {"config": "llama", "num_key_value_heads": 4, "head_dim": 128},
    ),
    "mistral last, as e5-mistral": (
        make_family,
        BPE | {"config": "mistral", "pooling": "last", "tokenizer": "bpe with end"},
    ),
    "mistral mean": (make_family, BPE | {"config": "mistral"}),
    "mistral without a window": (
        make_family,
        BPE | {"config": "mistral", "sliding_window": None, "pooling": "last"},
    ),
    "llama linear": (
        make_family,
        BPE | {"config": "llama", "rope_scaling": {"type": "linear", "factor": 4.0}},
    ),
    "llama dynamic": (
        make_family,
        BPE
        | {
            "config": "llama",
            "is_causal": False,
            "max_position_embeddings": 40,
            "rope_scaling": {"type": "dynamic", "factor": 2.5},
        },
    ),
    "llama 3.1": (make_family, BPE | {"config": "llama", "rope_scaling": LLAMA3}),
    "llama 3.1 as transformers 5 writes it": (
        make_family,
        BPE
        | {
            "config": "llama",
            "rope_theta": None,
            "rope_parameters": LLAMA3 | {"rope_theta": 5e5},
        },
    ),
    "qwen2 yarn": (
        make_family,
        BPE | {"config": "qwen2", "pooling": "last", "rope_scaling": YARN | {"truncate": False}},
    ),
    "qwen3 yarn": (
        make_family,
        BPE | {"config": "qwen3", "pooling": "last", "rope_scaling": YARN},
    ),
    "mistral yarn with everything stated": (
        make_family,
        BPE
        | {
            "config": "mistral",
            "sliding_window": None,
            "rope_scaling": YARN | {"beta_fast": 8.0, "beta_slow": 2.0, "attention_factor": 0.8},
        },
    ),
    "llama yarn with mscale": (
        make_family,
        BPE
        | {
            "config": "llama",
            "rope_scaling": YARN | {"mscale": 0.7, "mscale_all_dim": 1.2, "factor": 2.0},
        },
    ),
    "nomic": (make_family, {"config": "nomic_bert"}),
    "nomic dynamic": (
        make_family,
        {
            "config": "nomic_bert",
            "max_position_embeddings": 48,
            "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1000.0},
        },
    ),
    "nomic prefix": (
        make_family,
        {"config": "nomic_bert", "prefix": "nomic_bert.", "pooling": "cls"},
    ),
    "gte": (make_family, {"config": "gte", "pooling": "cls"}),
    "gte prefix": (make_family, {"config": "gte", "prefix": "new."}),
    "gte's first type, as gte-base-en-v1.5": (make_family, {"config": "new", "pooling": "cls"}),
    "gte's first type with token types, as gte-large-en-v1.5": (
        make_family,
        {
            "config": "new",
            "type_vocab_size": 2,
            "rope_theta": 160000,
            "prefix": "new.",
            "pooling": "cls",
        },
    ),
    "gte's first type, as gte-multilingual-base": (
        make_family,
        {
            "config": "new",
            "type_vocab_size": 1,
            "rope_theta": 20000,
            "rope_scaling": {"type": "ntk", "factor": 8.0},
            "pooling": "cls",
        },
    ),
    "gte linear": (
        make_family,
        {
            "config": "gte",
            "rope_parameters": {"rope_type": "linear", "factor": 1.5, "rope_theta": 5e5},
        },
    ),
    "gemma3 linear, as from 4B on": (
        make_family,
        BPE | {"config": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    ),
    "gemma3 bidirectional, as EmbeddingGemma": (make_family, BPE | {"config": "gemma3_text"}),
    "gemma3 causal": (
        make_family,
        BPE
        | {
            "config": "gemma3_text",
            "use_bidirectional_attention": False,
            "pooling": "last",
            "prefix": "model.",
        },
    ),
    "gemma3 head dim 256": (
        make_family,
        BPE | {"config": "gemma3_text", "head_dim": 256, "query_pre_attn_scalar": 256},
    ),
}
# Tokens a token sees on each side, in families with a window: lengths around it are tested.
WINDOWS = {
    "modernbert": 16,
    "modernbert cls": 16,
    "mistral last, as e5-mistral": 15,
    "mistral mean": 15,
    "gemma3 bidirectional, as EmbeddingGemma": 16,
    "gemma3 causal": 31,
    "gemma3 linear, as from 4B on": 16,
}
# Tokens from which on a text has frequencies of its own: lengths around it are tested.
TRAINED = {"llama dynamic": 40, "nomic dynamic": 48}


# A field of config.json, and a value for it that Hotbed must not have read: it has to show.
WRONG: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("xlm-roberta", {}, {"pad_token_id": 2}),
    ("modernbert", {}, {"local_attention": 30}),
    ("modernbert", {}, {"local_attention": 34}),
    ("modernbert", {}, {"global_attn_every_n_layers": 2}),
    ("modernbert", {}, {"local_rope_theta": 9000.0}),
    ("modernbert", {}, {"global_rope_theta": 150000.0}),
    ("nomic_bert", {}, {"rope_parameters": {"rope_theta": 900.0}}),
    ("gte", {}, {"rope_parameters": {"rope_theta": 150000.0}}),
    ("mistral", BPE, {"sliding_window": 15}),
    ("mistral", BPE, {"sliding_window": 17}),
    ("llama", BPE, {"rope_theta": 9000.0}),
    ("gemma3_text", BPE, {"sliding_window": 30}),
    ("gemma3_text", BPE, {"sliding_window": 34}),
    ("gemma3_text", BPE, {"rope_local_base_freq": 9000.0}),
    ("gemma3_text", BPE, {"sliding_window_pattern": 2}),
    ("gemma3_text", BPE, {"use_bidirectional_attention": False}),
    ("llama", BPE, {"is_causal": False}),
    ("new", {}, {"rope_scaling": None}),
    ("new", {}, {"rope_scaling": {"type": "ntk", "factor": 1.8}}),
    ("llama", BPE | {"rope_scaling": LLAMA3}, {"rope_scaling": None}),
    ("llama", BPE | {"rope_scaling": LLAMA3}, {"rope_scaling": LLAMA3 | {"factor": 7.0}}),
    (
        "llama",
        BPE | {"rope_scaling": LLAMA3},
        {"rope_scaling": LLAMA3 | {"high_freq_factor": 3.0}},
    ),
    ("llama", BPE | {"rope_scaling": YARN}, {"rope_scaling": YARN | {"attention_factor": 1.0}}),
    ("llama", BPE | {"rope_scaling": YARN}, {"rope_scaling": YARN | {"beta_slow": 2.0}}),
    ("llama", BPE | {"rope_scaling": YARN}, {"rope_scaling": YARN | {"truncate": False}}),
    ("gemma3_text", BPE, {"rope_scaling": {"rope_type": "linear", "factor": 1.1}}),
    (
        "nomic_bert",
        {
            "max_position_embeddings": 48,
            "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1000.0},
        },
        {"max_position_embeddings": 96, "rope_parameters": {"rope_theta": 1000.0}},
    ),
    ("qwen2", BPE | {"is_causal": False}, {"is_causal": True}),
]


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
    reach = TRAINED[name] - 1 if name in TRAINED else WINDOWS.get(name, 16)
    # transformers' RoBERTa looks for pad ids in the text to find positions, so none is in it.
    sequences = [
        random.integers(5, engine.info.vocab_size, n)
        for n in (1, 2, limit - 1, limit, reach, reach + 1, reach + 1, reach + 2, limit // 2, 1)
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
