"""Seeded random tiny models that score, on disk, as `transformers` would save them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer, processors

from tests.support.checkpoints import (
    Dtype,
    edit_json,
    make_bert,
    make_qwen3,
    write_json,
    write_tensors,
)
from tests.support.families import make_family, stored_shapes
from tests.support.tiny_weights import random_tensors

QWEN_SPECIALS = ["<|im_start|>", "<|im_end|>", "<think>", "</think>"]


def make_bert_scorer(
    folder: Path, *, labels: int = 1, prefix: str = "bert.", sharded: bool = False, **options: Any
) -> Path:
    """A BertForSequenceClassification; other options as of `make_bert`."""
    make_bert(folder, sentence_transformers=False, **options)
    edit_json(
        folder / "tokenizer_config.json",
        tokenizer_class="BertTokenizer",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    hidden = json.loads((folder / "config.json").read_text())["hidden_size"]
    head = _linear("classifier", labels, hidden)
    return _add_head(folder, "BertForSequenceClassification", head, labels, prefix, sharded)


def make_roberta_scorer(
    folder: Path,
    *,
    config: str = "xlm-roberta",
    labels: int = 1,
    prefix: str = "roberta.",
    sharded: bool = False,
    **options: Any,
) -> Path:
    """A model of RoBERTa's kind for sequence classification, like bge-reranker-v2-m3.

    Args:
        folder: made if need be.
        config: a name in `tests.support.families.CONFIGS`.
        options: as of `make_family`.
    """
    make_family(folder, config, sharded=False, **options)
    for name in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"):
        (folder / name).unlink()
    settings = json.loads((folder / "config.json").read_text())
    hidden = settings["hidden_size"]
    head = {
        **_linear("classifier.dense", hidden, hidden),
        **_linear("classifier.out_proj", labels, hidden),
    }
    name = settings["architectures"][0].replace("Model", "ForSequenceClassification")
    return _add_head(folder, name, head, labels, prefix, sharded)


def make_family_scorer(
    folder: Path, model_type: str, *, labels: int = 1, sharded: bool = False, **changes: Any
) -> Path:
    """A model for sequence classification of a family of `tests.support.families.CONFIGS`.

    Names and shapes are those of the class in `transformers`; other arguments change config.json.
    """
    from transformers import AutoModelForSequenceClassification

    make_family(folder, model_type, sharded=False, **changes)
    for path in (folder / "modules.json", folder / "config_sentence_transformers.json"):
        path.unlink()
    values = json.loads((folder / "config.json").read_text()) | {
        "id2label": {str(i): f"LABEL_{i}" for i in range(labels)},
        "label2id": {f"LABEL_{i}": i for i in range(labels)},
    }
    shapes, class_name = stored_shapes(AutoModelForSequenceClassification, values)
    values["architectures"] = [class_name]
    write_json(folder / "config.json", values)
    tensors = random_tensors(shapes, seed=1)
    write_tensors(folder, tensors, dtype="float32", sharded=sharded, prefix="")
    return folder


def make_qwen3_classifier(
    folder: Path, *, labels: int = 1, prefix: str = "model.", sharded: bool = False, **options: Any
) -> Path:
    """A Qwen3ForSequenceClassification, as Qwen3-Reranker is converted to; Qwen's template."""
    make_qwen3_reranker(folder, **options)
    hidden = json.loads((folder / "config.json").read_text())["hidden_size"]
    head = {"score.weight": _linear("score", labels, hidden)["score.weight"]}
    return _add_head(folder, "Qwen3ForSequenceClassification", head, labels, prefix, sharded)


def make_qwen3_reranker(
    folder: Path, *, tied: bool = True, prefix: str = "", sharded: bool = False, **options: Any
) -> Path:
    """A Qwen3ForCausalLM with the tokens "yes", "no" and those of Qwen's chat template.

    Args:
        folder: made if need be; a name with "rerank" in it lets Hotbed know what it is.
        tied: whether the output matrix is the embedding.
        prefix: put before the names of all tensors but the output matrix's.
        sharded: two files and an index instead of one.
        options: as of `make_qwen3`.
    """
    options = {"max_position_embeddings": 512, "head_dim": 128, **options}
    make_qwen3(folder, sentence_transformers=False, vocab_size=512, **options)
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    # Qwen3-Reranker's tokenizer, unlike Qwen3-Embedding's, appends nothing.
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(QWEN_SPECIALS)
    raw = json.loads(tokenizer.to_str())
    for word in ("yes", "no"):
        for end in range(2, len(word) + 1):
            pair = [word[: end - 1], word[end - 1]]
            if word[:end] not in raw["model"]["vocab"]:
                raw["model"]["vocab"][word[:end]] = 400 + len(raw["model"]["merges"])
                raw["model"]["merges"].append(pair)
    path.write_text(json.dumps(raw), encoding="utf-8")
    edit_json(folder / "tokenizer_config.json", model_max_length=512)
    edit_json(folder / "config.json", tie_word_embeddings=tied)
    hidden = json.loads((folder / "config.json").read_text())["hidden_size"]
    head = {} if tied else {"lm_head.weight": _linear("lm_head", 512, hidden)["lm_head.weight"]}
    return _add_head(folder, "Qwen3ForCausalLM", head, None, prefix, sharded)


def make_mxbai_reranker(folder: Path) -> Path:
    """A Qwen2ForCausalLM like mxbai-rerank-v2: a language model's files alone, output matrix tied.

    Args:
        folder: made if need be; a name with "rerank" in it lets Hotbed know what it is.
    """
    make_family(
        folder,
        "qwen2",
        tokenizer="bpe",
        prefix="model.",
        max_position_embeddings=512,
        vocab_size=400,
    )
    for name in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"):
        (folder / name).unlink()
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_special_tokens(QWEN_SPECIALS)
    tokenizer.save(str(path))
    edit_json(folder / "config.json", architectures=["Qwen2ForCausalLM"])
    return folder


def _linear(name: str, rows: int, columns: int) -> Mapping[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(len(name) + rows)
    weight = random.standard_normal((rows, columns)) / np.sqrt(columns)
    bias = 0.1 * random.standard_normal(rows)
    return {
        f"{name}.weight": weight.astype(np.float32),
        f"{name}.bias": bias.astype(np.float32),
    }


def _add_head(
    folder: Path,
    architecture: str,
    head: Mapping[str, np.ndarray[Any, Any]],
    labels: int | None,
    prefix: str,
    sharded: bool,
    dtype: Dtype = "float32",
) -> Path:
    changes: dict[str, Any] = {"architectures": [architecture]}
    if labels is not None:
        changes["id2label"] = {str(i): f"LABEL_{i}" for i in range(labels)}
        changes["label2id"] = {f"LABEL_{i}": i for i in range(labels)}
    edit_json(folder / "config.json", **changes)
    body = load_file(folder / "model.safetensors")
    tensors = {prefix + name: values for name, values in body.items()} | dict(head)
    write_tensors(folder, tensors, dtype=dtype, sharded=sharded, prefix="")
    return folder
