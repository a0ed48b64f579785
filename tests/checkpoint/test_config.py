"""config.json: what is read, what is ignored, and what is refused with field, value and choices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hotbed.checkpoint.config import Architecture, read_config
from hotbed.checkpoint.folder import ModelFolder
from hotbed.checkpoint.records import BertConfig, Qwen3Config
from tests.checkpoint.errors import refused

BERT: dict[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
}
QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 2560,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 9728,
    "max_position_embeddings": 32768,
    "rope_theta": 1000000,
}
PPLX = QWEN3 | {
    "architectures": ["PPLXQwen3Model"],
    "model_type": "bidirectional_pplx_qwen3",
    "use_bidirectional_attention": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}
REMOVED = object()


def _read(tmp_path: Path, base: dict[str, Any], **changes: object) -> Architecture:
    values = {k: v for k, v in (base | changes).items() if v is not REMOVED}
    (tmp_path / "config.json").write_text(json.dumps(values))
    return read_config(ModelFolder(name="m", source="folder", path=tmp_path))


def test_bert_with_the_familys_defaults(tmp_path: Path) -> None:
    read = _read(tmp_path, BERT)
    assert (read.family, read.name, read.is_causal) == ("bert", "BertModel", False)
    assert isinstance(read.config, BertConfig)
    assert (read.config.hidden_act, read.config.layer_norm_eps) == ("gelu", 1e-12)
    assert (read.config.type_vocab_size, read.config.head_dim) == (2, 32)


def test_unknown_keys_do_not_matter(tmp_path: Path) -> None:
    odd = {"auto_map": {"AutoModel": "modeling.X"}, "torch_dtype": None, "nonsense": [1, {"a": 2}]}
    assert _read(tmp_path, BERT, **odd) == _read(tmp_path, BERT)


def test_qwen3s_head_dim_is_its_own(tmp_path: Path) -> None:
    """hidden_size / num_attention_heads is 80 for the 4B model, its heads have 128."""
    read = _read(tmp_path, QWEN3)
    assert isinstance(read.config, Qwen3Config)
    assert read.config.head_dim == 128
    assert read.is_causal


@pytest.mark.parametrize(
    ("changes", "causal"),
    [
        ({}, True),
        ({"is_causal": True}, True),
        ({"is_causal": False}, False),
        ({"use_bidirectional_attention": True}, False),
        ({"use_bidirectional_attention": False, "is_causal": None}, True),
    ],
)
def test_when_qwen3_is_causal(tmp_path: Path, changes: dict[str, object], causal: bool) -> None:
    assert _read(tmp_path, QWEN3, **changes).is_causal is causal


@pytest.mark.parametrize(
    "changes", [{}, {"model_type": "qwen3"}, {"use_bidirectional_attention": REMOVED}]
)
def test_pplx_is_bidirectional_with_its_own_quantiser(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    read = _read(tmp_path, PPLX, **changes)
    assert (read.family, read.name) == ("qwen3", "PPLXQwen3Model")
    assert (read.is_causal, read.quantizer) == (False, "pplx")
    assert _read(tmp_path, QWEN3).quantizer == "none"


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 5e5},
        {"rope_theta": 500000, "rope_scaling": None},
        {"rope_theta": REMOVED, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        {"rope_theta": 5e5, "rope_parameters": {"rope_type": "default", "rope_theta": 500000}},
        {"rope_theta": 5e5, "rope_scaling": {"type": "default"}},
    ],
)
def test_rope_theta_wherever_it_stands(tmp_path: Path, rope: dict[str, object]) -> None:
    """transformers 5 moved it into rope_parameters."""
    read = _read(tmp_path, QWEN3, **rope)
    assert isinstance(read.config, Qwen3Config)
    assert read.config.rope_theta == 500_000.0


@pytest.mark.parametrize(
    ("base", "changes", "says"),
    [
        (BERT, {"position_embedding_type": "relative_key"}, ['"relative_key"', '"absolute"']),
        (BERT, {"hidden_act": "swish"}, ['hidden_act is "swish"', '"gelu_new"', '"relu"']),
        (BERT, {"is_decoder": True}, ["is_decoder is true"]),
        (BERT, {"add_cross_attention": True}, ["add_cross_attention is true"]),
        (BERT, {"num_attention_heads": 7}, ["hidden_size (384)", "num_attention_heads (7)"]),
        (BERT, {"architectures": ["BertForTokenClassification"]}, ['"BertForMaskedLM"']),
        (BERT, {"architectures": "BertModel"}, ["architectures"]),
        (BERT, {"quantization_config": {"quant_method": "awq"}}, ["quantization_config", "awq"]),
        (BERT, {"hidden_size": REMOVED}, ["hidden_size"]),
        (BERT, {"hidden_size": "384"}, ["hidden_size", "int"]),
        (BERT, {"vocab_size": 0}, ["vocab_size", ">= 1"]),
        (BERT, {"layer_norm_eps": 0}, ["layer_norm_eps"]),
        (BERT, {"model_type": "modernbert"}, ['"modernbert"', '"bert"', '"qwen3"', "pplx"]),
        (BERT, {"model_type": REMOVED}, ["model_type", '"bert"']),
        (BERT, {"model_type": ["bert"]}, ["model_type"]),
        (QWEN3, {"hidden_act": "gelu"}, ['hidden_act is "gelu"', '"silu"']),
        (QWEN3, {"attention_bias": True}, ["attention_bias is true"]),
        (QWEN3, {"use_sliding_window": True}, ["use_sliding_window is true"]),
        (QWEN3, {"layer_types": ["full_attention", "sliding_attention"]}, ["sliding_attention"]),
        (QWEN3, {"num_key_value_heads": 5}, ["num_attention_heads (32)", "(5)"]),
        (QWEN3, {"head_dim": 127}, ["head_dim (127)", "even"]),
        (QWEN3, {"head_dim": REMOVED}, ["head_dim"]),
        (QWEN3, {"rope_theta": REMOVED}, ["rope_theta is missing"]),
        (QWEN3, {"rope_scaling": {"type": "yarn", "factor": 4}}, ['rope_scaling.type is "yarn"']),
        (QWEN3, {"rope_parameters": {"rope_type": "linear"}}, ['rope_type is "linear"']),
        (QWEN3, {"rope_parameters": {"partial_rotary_factor": 0.5}}, ["partial_rotary_factor"]),
        (QWEN3, {"rope_parameters": {"rope_theta": 1e4}}, ["stated twice", "10000"]),
        (QWEN3, {"rope_parameters": "default"}, ["rope_parameters"]),
        (QWEN3, {"architectures": ["Qwen3ForTokenClassification"]}, ['"Qwen3Model"']),
        (QWEN3, {"is_causal": "no"}, ["is_causal"]),
        (PPLX, {"use_bidirectional_attention": False}, ["use_bidirectional_attention is false"]),
        (PPLX, {"architectures": ["PPLXLateModel"]}, ["PPLXLateModel", "PPLXQwen3Model"]),
    ],
)
def test_a_value_that_would_change_the_vectors_is_refused(
    tmp_path: Path, base: dict[str, Any], changes: dict[str, object], says: list[str]
) -> None:
    """Ignored, each of them gives vectors that look right and are wrong."""
    with refused("config.json", *says):
        _read(tmp_path, base, **changes)


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"])
def test_activations_of_bert(tmp_path: Path, act: str) -> None:
    assert _read(tmp_path, BERT, hidden_act=act).config.hidden_act == act


def test_a_folder_without_config_is_told_so(tmp_path: Path) -> None:
    with refused("config.json is missing", str(tmp_path)):
        read_config(ModelFolder(name="m", source="folder", path=tmp_path))
