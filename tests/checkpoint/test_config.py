"""config.json: what is read, what is ignored, and what is refused with field, value and choices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hotbed.checkpoint.config import read_config
from hotbed.checkpoint.folder import ModelFolder
from hotbed.checkpoint.records import (
    BertConfig,
    DecoderConfig,
    Gemma3Config,
    ModernBertConfig,
    T5Config,
)
from tests.checkpoint.configs import (
    BERT,
    DEBERTA,
    DISTILBERT,
    ELECTRA,
    EUROBERT,
    GEMMA3,
    GTE,
    JINA,
    LLAMA,
    LLAMA3,
    MISTRAL,
    MODERNBERT,
    MPNET,
    NEMOTRON,
    NOMIC,
    PPLX,
    QWEN2,
    QWEN3,
    REMOVED,
    T5,
    XLMR,
    read,
)
from tests.checkpoint.errors import refused


def test_bert_with_the_familys_defaults(tmp_path: Path) -> None:
    found = read(tmp_path, BERT)
    assert (found.family, found.name, found.is_causal) == ("bert", "BertModel", False)
    assert isinstance(found.config, BertConfig)
    assert (found.config.hidden_act, found.config.layer_norm_eps) == ("gelu", 1e-12)
    assert (found.config.type_vocab_size, found.config.head_dim) == (2, 32)


def test_unknown_keys_do_not_matter(tmp_path: Path) -> None:
    odd = {"auto_map": {"AutoConfig": "modeling.X"}, "torch_dtype": None, "nonsense": [{"a": 2}]}
    assert read(tmp_path, BERT, **odd) == read(tmp_path, BERT)


@pytest.mark.parametrize(
    ("base", "auto_class", "name"),
    [
        (NOMIC, "AutoModel", "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"),
        (GTE, "AutoModel", "modeling_hf_alibaba_nlp_gte.GteModel"),
        (QWEN2, "AutoModel", "modeling_qwen.Qwen2Model"),
        (PPLX, "AutoModel", "modeling.PPLXQwen3ContextualModel"),
        (QWEN2, "AutoModelForSequenceClassification", "modeling.Another"),  # it is no classifier
    ],
)
def test_code_of_a_class_that_is_known_does_not_matter(
    tmp_path: Path, base: dict[str, Any], auto_class: str, name: str
) -> None:
    read(tmp_path, base, auto_map={auto_class: name})


@pytest.mark.parametrize(
    ("changes", "auto_class", "name"),
    [
        ({}, "AutoModel", "modeling.Qwen2BidirectionalModel"),
        (
            {"architectures": ["Qwen2ForSequenceClassification"]},
            "AutoModelForSequenceClassification",
            "theirs/code--modeling.Qwen2ForMeanPooledClassification",
        ),
    ],
)
def test_code_of_the_folders_own_is_refused(
    tmp_path: Path, changes: dict[str, Any], auto_class: str, name: str
) -> None:
    """It was passed over: a Qwen2 whose code sees both sides was read as a causal one."""
    with refused("config.json", f"auto_map.{auto_class}", name, "Qwen2Model"):
        read(tmp_path, QWEN2, **changes, auto_map={auto_class: name})


def test_qwen3s_head_dim_is_its_own(tmp_path: Path) -> None:
    """hidden_size / num_attention_heads is 80 for the 4B model, its heads have 128."""
    found = read(tmp_path, QWEN3)
    assert isinstance(found.config, DecoderConfig)
    assert found.config.head_dim == 128
    assert found.is_causal


def test_mistrals_window_counts_the_token_itself(tmp_path: Path) -> None:
    config = read(tmp_path, MISTRAL).config
    assert isinstance(config, DecoderConfig)
    assert (config.window, config.is_causal, config.head_dim) == (4095, True, 128)
    later = read(tmp_path, MISTRAL, sliding_window=None).config
    assert isinstance(later, DecoderConfig)
    assert later.window is None


@pytest.mark.parametrize(
    ("base", "qkv_bias", "qk_norm"),
    [(LLAMA, False, False), (MISTRAL, False, False), (QWEN2, True, False), (QWEN3, False, True)],
)
def test_what_tells_the_decoders_apart(
    tmp_path: Path, base: dict[str, Any], qkv_bias: bool, qk_norm: bool
) -> None:
    found = read(tmp_path, base)
    assert isinstance(found.config, DecoderConfig)
    assert (found.config.qkv_bias, found.config.qk_norm) == (qkv_bias, qk_norm)
    assert found.family == "decoder"


def test_an_old_llama_has_a_key_head_for_each_query_head(tmp_path: Path) -> None:
    config = read(tmp_path, LLAMA, num_key_value_heads=REMOVED).config
    assert isinstance(config, DecoderConfig)
    assert config.num_key_value_heads == 32


def test_debertas_kinds_of_attention_are_named_in_two_forms(tmp_path: Path) -> None:
    """microsoft's files have a string, later ones a list."""
    assert read(tmp_path, DEBERTA, pos_att_type="p2c|c2p") == read(tmp_path, DEBERTA)


def test_jinas_bert_has_berts_type(tmp_path: Path) -> None:
    found = read(tmp_path, JINA)
    assert (found.family, found.name) == ("jina_bert", "JinaBertForMaskedLM")
    assert found.config.longest_sequence == 8192


def test_t5s_fields_have_names_of_their_own(tmp_path: Path) -> None:
    config = read(tmp_path, T5, layer_norm_epsilon=1e-3).config
    assert isinstance(config, T5Config)
    assert (config.hidden_size, config.head_dim, config.layer_norm_eps) == (768, 64, 1e-3)
    assert (config.is_gated, config.longest_sequence) == (False, 512)
    gated = read(tmp_path, T5, feed_forward_proj="gated-gelu", n_positions=REMOVED).config
    assert isinstance(gated, T5Config)
    assert (gated.is_gated, gated.longest_sequence) == (True, 512)


def test_eurobert_is_an_encoder(tmp_path: Path) -> None:
    found = read(tmp_path, EUROBERT)
    assert (found.family, found.is_causal) == ("decoder", False)


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
    assert read(tmp_path, QWEN3, **changes).is_causal is causal


@pytest.mark.parametrize(
    "changes", [{}, {"model_type": "qwen3"}, {"use_bidirectional_attention": REMOVED}]
)
def test_pplx_is_bidirectional_with_its_own_quantiser(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    found = read(tmp_path, PPLX, **changes)
    assert (found.family, found.name) == ("decoder", "PPLXQwen3Model")
    assert (found.is_causal, found.quantizer) == (False, "pplx")
    assert read(tmp_path, QWEN3).quantizer == "none"


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
        (BERT, {"model_type": "longformer"}, ['"longformer"', '"bert"', '"qwen3"', "pplx"]),
        (BERT, {"model_type": REMOVED}, ["model_type", '"bert"']),
        (BERT, {"model_type": ["bert"]}, ["model_type"]),
        (DISTILBERT, {"activation": "silu"}, ["activation", '"silu"', '"relu"']),
        (DISTILBERT, {"n_heads": 7}, ["dim (768)", "n_heads (7)"]),
        (DISTILBERT, {"dim": REMOVED}, ["hidden_size"]),
        (DISTILBERT, {"architectures": ["BertModel"]}, ['"DistilBertModel"']),
        (DEBERTA, {"hidden_act": "relu"}, ["hidden_act", '"relu"', '"gelu"']),
        (DEBERTA, {"conv_kernel_size": 3}, ["conv_kernel_size is 3", "0"]),
        (DEBERTA, {"embedding_size": 128}, ["embedding_size is 128", "384"]),
        (DEBERTA, {"type_vocab_size": 2}, ["type_vocab_size is 2", "0"]),
        (DEBERTA, {"position_biased_input": REMOVED}, ["position_biased_input", "null", "false"]),
        (DEBERTA, {"relative_attention": False}, ["relative_attention", "true"]),
        (DEBERTA, {"share_att_key": REMOVED}, ["share_att_key", "true"]),
        (DEBERTA, {"norm_rel_ebd": "none"}, ["norm_rel_ebd", '"layer_norm"']),
        (DEBERTA, {"pos_att_type": "c2p"}, ["pos_att_type", "p2c"]),
        (DEBERTA, {"max_relative_positions": 64}, ["max_relative_positions is 64", "512"]),
        (DEBERTA, {"position_buckets": REMOVED}, ["position_buckets"]),
        (DEBERTA, {"attention_head_size": 64}, ["attention_head_size is 64", "32"]),
        (JINA, {"position_embedding_type": REMOVED}, ["position_embedding_type", '"alibi"']),
        (JINA, {"feed_forward_type": "reglu"}, ["feed_forward_type", '"geglu"']),
        (JINA, {"hidden_act": "relu"}, ["hidden_act", '"gelu"']),
        (ELECTRA, {"embedding_size": 128}, ["embedding_size is 128", "384"]),
        (ELECTRA, {"embedding_size": REMOVED}, ["embedding_size is missing"]),
        (NEMOTRON, {"pooling": "last"}, ["pooling", '"avg"']),
        (T5, {"feed_forward_proj": "gated-silu"}, ["feed_forward_proj", '"gated-gelu"']),
        (T5, {"relative_attention_max_distance": 64}, ["relative_attention_max_distance", "128"]),
        (T5, {"relative_attention_num_buckets": 6}, ["relative_attention_num_buckets"]),
        (T5, {"d_kv": REMOVED}, ["head_dim"]),
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
        (QWEN3, {"rope_scaling": {"type": "longrope"}}, ['type is "longrope"', '"yarn"']),
        (QWEN3, {"rope_scaling": {"type": "ntk", "factor": 2.0}}, ['rope_scaling.type is "ntk"']),
        (QWEN3, {"rope_parameters": {"rope_type": "linear"}}, ["rope_parameters", "factor"]),
        (QWEN3, {"rope_scaling": {"type": "linear", "factor": 0.5}}, ["rope_scaling", ">= 1"]),
        (QWEN3, {"rope_scaling": {"type": "linear", "factor": "2"}}, ["rope_scaling", "float"]),
        (
            QWEN3,
            {"rope_scaling": {"type": "yarn", "original_max_position_embeddings": "4k"}},
            ["rope_scaling (yarn)"],
        ),
        (
            QWEN3,
            {"rope_scaling": {"type": "yarn", "original_max_position_embeddings": 0}},
            ["rope_scaling (yarn)"],
        ),
        (
            QWEN3,
            {
                "rope_scaling": {"type": "yarn", "factor": 4.0},
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
            },
            ["rope_scaling and rope_parameters", "different"],
        ),
        (QWEN3, {"partial_rotary_factor": 0.5}, ["partial_rotary_factor is 0.5"]),
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
        (GEMMA3, {"rope_scaling": {"rope_type": "linear"}}, ["rope_scaling", "factor"]),
        (
            GEMMA3,
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 8.0}}},
            ["sliding_attention.rope_type"],
        ),
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
        (GTE, {"rope_scaling": {"type": "ntk", "factor": None}}, ["rope_scaling.factor is None"]),
        (
            GTE,
            {"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.75}},
            ["rope_scaling.mixed_b is 0.75"],
        ),
        (GTE, {"rope_scaling": {"type": "ntk", "factor": 2.0}, "rope_theta": REMOVED}, ["theta"]),
        (GTE, {"position_embedding_type": "absolute"}, ['"absolute"', '"rope"']),
        (GTE, {"layer_norm_type": "rms_norm"}, ['"rms_norm"']),
        (GTE, {"type_vocab_size": -1}, ["type_vocab_size"]),
        (
            GTE,
            {"architectures": ["NewForSequenceClassification"], "type_vocab_size": 2},
            ["type_vocab_size is 2"],
        ),
        (GTE, {"model_type": "new", "architectures": ["GteModel"]}, ['"NewModel"']),
        (LLAMA, {"attention_bias": True}, ["attention_bias is true"]),
        (LLAMA, {"mlp_bias": True}, ["mlp_bias is true"]),
        (LLAMA, {"rope_scaling": {"rope_type": "llama3"}}, ["rope_scaling (llama3)", "factor"]),
        (
            LLAMA,
            {"rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}},
            ["high_freq_factor (1.0)", "low_freq_factor (1.0)"],
        ),
        (LLAMA, {"rope_theta": REMOVED}, ["rope_theta is missing"]),
        (LLAMA, {"num_attention_heads": 33}, ["hidden_size (4096)", "num_attention_heads (33)"]),
        (LLAMA, {"num_attention_heads": REMOVED}, ["num_attention_heads is None"]),
        (LLAMA, {"hidden_act": "gelu"}, ['hidden_act is "gelu"']),
        (EUROBERT, {"mlp_bias": True}, ["mlp_bias is true"]),
        (EUROBERT, {"attention_bias": True}, ["attention_bias is true"]),
        (EUROBERT, {"architectures": ["EuroBertForSequenceClassification"]}, ['"EuroBertModel"']),
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
        read(tmp_path, base, **changes)


@pytest.mark.parametrize(
    ("changes", "offset", "longest"),
    [({}, 2, 512), ({"pad_token_id": REMOVED}, 2, 512), ({"pad_token_id": 3}, 4, 510)],
)
def test_xlm_rs_last_two_positions_are_not_used(
    tmp_path: Path, changes: dict[str, object], offset: int, longest: int
) -> None:
    """Used, 513 tokens are an index error, on a GPU an assert that kills the process."""
    config = read(tmp_path, XLMR, **changes).config
    assert isinstance(config, BertConfig)
    assert (config.position_offset, config.longest_sequence) == (offset, longest)


@pytest.mark.parametrize(
    ("model_type", "name"), [("roberta", "RobertaModel"), ("camembert", "CamembertForMaskedLM")]
)
def test_robertas_relatives_are_berts(tmp_path: Path, model_type: str, name: str) -> None:
    found = read(tmp_path, XLMR, model_type=model_type, architectures=[name])
    assert (found.family, found.name) == ("bert", name)


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
    config = read(tmp_path, MODERNBERT).config
    assert isinstance(config, ModernBertConfig)
    assert config.window == 64
    assert config.is_local == (False, True, True, False, True)


def test_modernbert_as_transformers_5_writes_it(tmp_path: Path) -> None:
    old = read(tmp_path, MODERNBERT, num_hidden_layers=6)
    assert read(tmp_path, MODERNBERT, **NEW_MODERNBERT) == old


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
    assert read(tmp_path, NOMIC) == read(tmp_path, native)
    assert read(tmp_path, NOMIC).config.longest_sequence == 8192


def test_embeddinggemmas_window_is_half_on_either_side(tmp_path: Path) -> None:
    """Read as one sided or in full it changes vectors of texts above 256 tokens alone."""
    config = read(tmp_path, GEMMA3).config
    assert isinstance(config, Gemma3Config)
    assert (config.window, config.is_causal) == (256, False)
    assert config.is_local == (True, True, True, True, True, False)
    causal = read(tmp_path, GEMMA3, use_bidirectional_attention=False).config
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
    assert read(tmp_path, GEMMA3, **changes) == read(tmp_path, GEMMA3)


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"])
def test_activations_of_bert(tmp_path: Path, act: str) -> None:
    assert read(tmp_path, BERT, hidden_act=act).config.hidden_act == act


def test_a_folder_without_config_is_told_so(tmp_path: Path) -> None:
    with refused("config.json is missing", str(tmp_path)):
        read_config(ModelFolder(name="m", source="folder", path=tmp_path))
