"""config.json: what is read, what is ignored, and what is refused with field, value and choices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hotbed.checkpoint.config import read_config
from hotbed.checkpoint.config_fields import Architecture
from hotbed.checkpoint.folder import ModelFolder
from hotbed.checkpoint.records import BertConfig, DecoderConfig, Gemma3Config, ModernBertConfig
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
XLMR = BERT | {
    "architectures": ["XLMRobertaModel"],
    "model_type": "xlm-roberta",
    "max_position_embeddings": 514,
    "pad_token_id": 1,
    "type_vocab_size": 1,
}
MODERNBERT: dict[str, Any] = {
    "architectures": ["ModernBertForMaskedLM"],
    "model_type": "modernbert",
    "vocab_size": 50368,
    "hidden_size": 768,
    "num_hidden_layers": 5,
    "num_attention_heads": 12,
    "intermediate_size": 1152,
    "max_position_embeddings": 8192,
    "local_attention": 128,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
}
# As e5-mistral-7b-instruct, gte-Qwen2 and a small Llama state them.
MISTRAL = QWEN3 | {
    "architectures": ["MistralModel"],
    "model_type": "mistral",
    "hidden_size": 4096,
    "sliding_window": 4096,
}
MISTRAL.pop("head_dim")
QWEN2 = MISTRAL | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
LLAMA = MISTRAL | {"architectures": ["LlamaModel"], "model_type": "llama"}
# As EmbeddingGemma states them.
GEMMA3: dict[str, Any] = {
    "architectures": ["Gemma3TextModel"],
    "model_type": "gemma3_text",
    "vocab_size": 262144,
    "hidden_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "intermediate_size": 1152,
    "max_position_embeddings": 2048,
    "sliding_window": 512,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "query_pre_attn_scalar": 256,
    "use_bidirectional_attention": True,
    "rope_scaling": None,
}
# As nomic-embed-text-v1.5 states them, with GPT-2's names.
NOMIC: dict[str, Any] = {
    "architectures": ["NomicBertModel"],
    "model_type": "nomic_bert",
    "activation_function": "swiglu",
    "causal": False,
    "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 2048,
    "n_embd": 768,
    "n_head": 12,
    "n_inner": 3072,
    "n_layer": 12,
    "n_positions": 8192,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "type_vocab_size": 2,
    "vocab_size": 30528,
}
GTE = BERT | {
    "architectures": ["GteModel"],
    "model_type": "gte",
    "hidden_act": "gelu",
    "position_embedding_type": "rope",
    "rope_scaling": None,
    "rope_theta": 160000,
    "max_position_embeddings": 8192,
    "type_vocab_size": 1,
}
MPNET = BERT | {
    "architectures": ["MPNetModel"],
    "model_type": "mpnet",
    "max_position_embeddings": 514,
    "relative_attention_num_buckets": 32,
}
DISTILBERT: dict[str, Any] = {
    "architectures": ["DistilBertModel"],
    "model_type": "distilbert",
    "activation": "gelu",
    "dim": 768,
    "hidden_dim": 3072,
    "max_position_embeddings": 512,
    "n_heads": 12,
    "n_layers": 6,
    "sinusoidal_pos_embds": False,
    "vocab_size": 30522,
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
    assert isinstance(read.config, DecoderConfig)
    assert read.config.head_dim == 128
    assert read.is_causal


def test_mistrals_window_counts_the_token_itself(tmp_path: Path) -> None:
    config = _read(tmp_path, MISTRAL).config
    assert isinstance(config, DecoderConfig)
    assert (config.window, config.is_causal, config.head_dim) == (4095, True, 128)
    later = _read(tmp_path, MISTRAL, sliding_window=None).config
    assert isinstance(later, DecoderConfig)
    assert later.window is None


@pytest.mark.parametrize(
    ("base", "qkv_bias", "qk_norm"),
    [(LLAMA, False, False), (MISTRAL, False, False), (QWEN2, True, False), (QWEN3, False, True)],
)
def test_what_tells_the_decoders_apart(
    tmp_path: Path, base: dict[str, Any], qkv_bias: bool, qk_norm: bool
) -> None:
    read = _read(tmp_path, base)
    assert isinstance(read.config, DecoderConfig)
    assert (read.config.qkv_bias, read.config.qk_norm) == (qkv_bias, qk_norm)
    assert read.family == "decoder"


def test_an_old_llama_has_a_key_head_for_each_query_head(tmp_path: Path) -> None:
    config = _read(tmp_path, LLAMA, num_key_value_heads=REMOVED).config
    assert isinstance(config, DecoderConfig)
    assert config.num_key_value_heads == 32


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
    assert (read.family, read.name) == ("decoder", "PPLXQwen3Model")
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
    assert isinstance(read.config, DecoderConfig)
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
        (BERT, {"model_type": "deberta-v2"}, ['"deberta-v2"', '"bert"', '"qwen3"', "pplx"]),
        (BERT, {"model_type": REMOVED}, ["model_type", '"bert"']),
        (BERT, {"model_type": ["bert"]}, ["model_type"]),
        (DISTILBERT, {"activation": "silu"}, ["activation", '"silu"', '"relu"']),
        (DISTILBERT, {"n_heads": 7}, ["dim (768)", "n_heads (7)"]),
        (DISTILBERT, {"dim": REMOVED}, ["hidden_size"]),
        (DISTILBERT, {"architectures": ["BertModel"]}, ['"DistilBertModel"']),
        (MPNET, {"hidden_act": "relu"}, ['"relu"', '"gelu"']),
        (MPNET, {"relative_attention_num_buckets": 3}, ["relative_attention_num_buckets"]),
        (MPNET, {"max_position_embeddings": 2}, ["max_position_embeddings"]),
        (XLMR, {"pad_token_id": None}, ["pad_token_id is None"]),
        (XLMR, {"pad_token_id": -1}, ["pad_token_id is -1"]),
        (XLMR, {"max_position_embeddings": 2}, ["max_position_embeddings (2)", "(1)"]),
        (XLMR, {"architectures": ["BertModel"]}, ['"XLMRobertaModel"']),
        (XLMR, {"position_embedding_type": "relative_key"}, ['"relative_key"']),
        (MODERNBERT, {"norm_bias": True}, ["norm_bias is true"]),
        (MODERNBERT, {"attention_bias": True}, ["attention_bias is true"]),
        (MODERNBERT, {"mlp_bias": True}, ["mlp_bias is true"]),
        (MODERNBERT, {"hidden_activation": "silu"}, ['"silu"', '"gelu"']),
        (MODERNBERT, {"local_rope_theta": None}, ["local_rope_theta is missing"]),
        (MODERNBERT, {"global_rope_theta": REMOVED}, ["global_rope_theta is missing"]),
        (MODERNBERT, {"local_attention": REMOVED}, ["local_attention is None"]),
        (MODERNBERT, {"local_attention": 1}, ["window"]),
        (MODERNBERT, {"global_attn_every_n_layers": 0}, ["global_attn_every_n_layers is 0"]),
        (MODERNBERT, {"layer_types": ["full_attention"]}, ["must name 5 layers"]),
        (MODERNBERT, {"layer_types": ["chunked_attention"] * 5}, ['"chunked_attention"']),
        (MODERNBERT, {"rope_scaling": {"type": "linear"}}, ["rope_scaling"]),
        (
            MODERNBERT,
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            ["full_attention.rope_type"],
        ),
        (
            MODERNBERT,
            {"rope_parameters": {"sliding_attention": {"rope_theta": 5.0}}},
            ["local_rope_theta is stated twice"],
        ),
        (MODERNBERT, {"architectures": ["ModernBertDecoderModel"]}, ['"ModernBertModel"']),
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
        (GEMMA3, {"query_pre_attn_scalar": 168}, ["query_pre_attn_scalar is 168", "256"]),
        (GEMMA3, {"attn_logit_softcapping": 50.0}, ["attn_logit_softcapping is 50.0"]),
        (GEMMA3, {"hidden_activation": "gelu"}, ['"gelu_pytorch_tanh"']),
        (GEMMA3, {"sliding_window": None}, ["sliding_window is None"]),
        (GEMMA3, {"sliding_window_pattern": 0}, ["sliding_window_pattern is 0"]),
        (GEMMA3, {"rope_local_base_freq": REMOVED}, ["rope_local_base_freq is missing"]),
        (GEMMA3, {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, ["rope_scaling"]),
        (GEMMA3, {"num_key_value_heads": 2}, ["num_attention_heads (3)"]),
        (GEMMA3, {"architectures": ["Gemma3ForConditionalGeneration"]}, ['"Gemma3TextModel"']),
        (NOMIC, {"activation_function": "gelu"}, ['"swiglu"']),
        (NOMIC, {"num_experts": 8}, ["num_experts is 8"]),
        (NOMIC, {"prenorm": True}, ["prenorm is true"]),
        (NOMIC, {"qkv_proj_bias": True}, ["qkv_proj_bias is true"]),
        (NOMIC, {"rotary_emb_fraction": 0.5}, ["rotary_emb_fraction is 0.5"]),
        (NOMIC, {"rotary_emb_interleaved": True}, ["rotary_emb_interleaved"]),
        (NOMIC, {"rotary_emb_base": REMOVED}, ["rope_theta is missing"]),
        (NOMIC, {"n_embd": REMOVED}, ["hidden_size"]),
        (NOMIC, {"n_positions": REMOVED}, ["max_position_embeddings"]),
        (
            NOMIC,
            {"rotary_scaling_factor": 2, "max_trained_positions": REMOVED},
            ["max_trained_positions"],
        ),
        (GTE, {"rope_scaling": {"type": "ntk", "factor": 2.0}}, ['rope_scaling.type is "ntk"']),
        (GTE, {"position_embedding_type": "absolute"}, ['"absolute"', '"rope"']),
        (GTE, {"layer_norm_type": "rms_norm"}, ['"rms_norm"']),
        (GTE, {"type_vocab_size": 0}, ["type_vocab_size"]),
        (GTE, {"model_type": "new"}, ['model_type is "new"', '"gte"']),
        (LLAMA, {"attention_bias": True}, ["attention_bias is true"]),
        (LLAMA, {"mlp_bias": True}, ["mlp_bias is true"]),
        (LLAMA, {"rope_scaling": {"rope_type": "llama3"}}, ['rope_type is "llama3"']),
        (LLAMA, {"rope_theta": REMOVED}, ["rope_theta is missing"]),
        (LLAMA, {"num_attention_heads": 33}, ["hidden_size (4096)", "num_attention_heads (33)"]),
        (LLAMA, {"num_attention_heads": REMOVED}, ["num_attention_heads is None"]),
        (LLAMA, {"hidden_act": "gelu"}, ['hidden_act is "gelu"']),
        (QWEN2, {"use_sliding_window": True}, ["use_sliding_window is true"]),
        (QWEN2, {"layer_types": ["sliding_attention"]}, ["sliding_attention"]),
        (MISTRAL, {"is_causal": False}, ["sliding_window is 4096", "bidirectional"]),
        (MISTRAL, {"sliding_window": 0}, ["sliding_window is 0"]),
        (MISTRAL, {"architectures": ["MistralForTokenClassification"]}, ['"MistralModel"']),
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


@pytest.mark.parametrize(
    ("changes", "offset", "longest"),
    [({}, 2, 512), ({"pad_token_id": REMOVED}, 2, 512), ({"pad_token_id": 3}, 4, 510)],
)
def test_xlm_rs_last_two_positions_are_not_used(
    tmp_path: Path, changes: dict[str, object], offset: int, longest: int
) -> None:
    """Used, 513 tokens are an index error, on a GPU an assert that kills the process."""
    config = _read(tmp_path, XLMR, **changes).config
    assert isinstance(config, BertConfig)
    assert (config.position_offset, config.longest_sequence) == (offset, longest)


@pytest.mark.parametrize(
    ("model_type", "name"), [("roberta", "RobertaModel"), ("camembert", "CamembertForMaskedLM")]
)
def test_robertas_relatives_are_berts(tmp_path: Path, model_type: str, name: str) -> None:
    read = _read(tmp_path, XLMR, model_type=model_type, architectures=[name])
    assert (read.family, read.name) == ("bert", name)


NEW_MODERNBERT: dict[str, object] = {
    "global_attn_every_n_layers": REMOVED,
    "global_rope_theta": REMOVED,
    "local_rope_theta": REMOVED,
    "layer_types": ["full_attention", *["sliding_attention"] * 2] * 2,
    "num_hidden_layers": 6,
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
}


def test_modernberts_window_is_half_on_either_side(tmp_path: Path) -> None:
    config = _read(tmp_path, MODERNBERT).config
    assert isinstance(config, ModernBertConfig)
    assert config.window == 64
    assert config.is_local == (False, True, True, False, True)


def test_modernbert_as_transformers_5_writes_it(tmp_path: Path) -> None:
    old = _read(tmp_path, MODERNBERT, num_hidden_layers=6)
    assert _read(tmp_path, MODERNBERT, **NEW_MODERNBERT) == old


def test_nomic_in_both_forms(tmp_path: Path) -> None:
    native = {
        "architectures": ["NomicBertModel"],
        "model_type": "nomic_bert",
        "vocab_size": 30528,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "max_position_embeddings": 8192,
        "layer_norm_eps": 1e-12,
        "hidden_act": "silu",
        "type_vocab_size": 2,
        "rope_parameters": {"rope_theta": 1000.0, "rope_type": "default"},
    }
    assert _read(tmp_path, NOMIC) == _read(tmp_path, native)
    assert _read(tmp_path, NOMIC).config.longest_sequence == 8192


def test_nomic_with_a_scaled_rotation_stops_where_it_would_be_scaled(tmp_path: Path) -> None:
    """By the batch's longest text, in its own code: the same text would get two vectors."""
    read = _read(tmp_path, NOMIC, rotary_scaling_factor=2.0)
    assert read.config.longest_sequence == 2048


def test_embeddinggemmas_window_is_half_on_either_side(tmp_path: Path) -> None:
    """Read as one sided or in full it changes vectors of texts above 256 tokens alone."""
    config = _read(tmp_path, GEMMA3).config
    assert isinstance(config, Gemma3Config)
    assert (config.window, config.is_causal) == (256, False)
    assert config.is_local == (True, True, True, True, True, False)
    causal = _read(tmp_path, GEMMA3, use_bidirectional_attention=False).config
    assert isinstance(causal, Gemma3Config)
    assert (causal.window, causal.is_causal) == (511, True)


def test_gemma3_as_transformers_5_writes_it(tmp_path: Path) -> None:
    changes: dict[str, object] = {
        "rope_theta": REMOVED,
        "rope_local_base_freq": REMOVED,
        "layer_types": [*["sliding_attention"] * 5, "full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    }
    assert _read(tmp_path, GEMMA3, **changes) == _read(tmp_path, GEMMA3)


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"])
def test_activations_of_bert(tmp_path: Path, act: str) -> None:
    assert _read(tmp_path, BERT, hidden_act=act).config.hidden_act == act


def test_a_folder_without_config_is_told_so(tmp_path: Path) -> None:
    with refused("config.json is missing", str(tmp_path)):
        read_config(ModelFolder(name="m", source="folder", path=tmp_path))
