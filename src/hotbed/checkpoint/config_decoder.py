"""config.json of decoders: Qwen3 and pplx-embed, which is Qwen3 inside, Qwen2, Llama and EuroBERT,
which is an encoder of its layers, Mistral.
"""

from __future__ import annotations

from hotbed.checkpoint.config_fields import Architecture, Fields, ModelType
from hotbed.checkpoint.config_rope import read_rope
from hotbed.checkpoint.folder import unsupported
from hotbed.checkpoint.records import DecoderConfig
from hotbed.core.errors import invalid

PPLX_CLASS = "PPLXQwen3Model"
_CONTEXTUAL_CLASS = "PPLXQwen3ContextualModel"
PPLX_CODE = (PPLX_CLASS, _CONTEXTUAL_CLASS)
"""What auto_map may name."""


def read_qwen3(fields: Fields, name: str) -> Architecture:
    """Qwen3, causal or bidirectional."""
    if name == PPLX_CLASS:
        return read_pplx(fields, name)
    _check_no_window(fields)
    fields.require("attention_bias", False)
    return Architecture(family="decoder", name=name, config=_config(fields, qk_norm=True))


def read_qwen2(fields: Fields, name: str) -> Architecture:
    """Qwen2 and 2.5: biases on q, k and v."""
    _check_no_window(fields)
    return Architecture(family="decoder", name=name, config=_config(fields, qkv_bias=True))


def read_llama(fields: Fields, name: str) -> Architecture:
    """Llama."""
    fields.require("attention_bias", False)
    fields.require("mlp_bias", False)
    return Architecture(family="decoder", name=name, config=_config(fields))


def read_llama_bidirec(fields: Fields, name: str) -> Architecture:
    """NVIDIA's Llama that sees both sides, as its own code makes it."""
    fields.require("attention_bias", False)
    fields.require("mlp_bias", False)
    fields.require("pooling", "avg")
    return Architecture(family="decoder", name=name, config=_config(fields, causal=False))


def read_eurobert(fields: Fields, name: str) -> Architecture:
    """EuroBERT: Llama's layers as an encoder (Boizard et al. 2025, arXiv 2503.05500)."""
    fields.require("attention_bias", False)
    fields.require("mlp_bias", False)
    return Architecture(family="decoder", name=name, config=_config(fields, causal=False))


def read_mistral(fields: Fields, name: str) -> Architecture:
    """Mistral: Llama, in early versions with a window."""
    # The window is stated with the token itself.
    window = None
    if fields.values.get("sliding_window") is not None:
        window = fields.count("sliding_window") - 1
    config = _config(fields, window=window)
    if window is not None and not config.is_causal:
        raise invalid(
            f"{fields.path}: sliding_window is {window + 1} in a bidirectional model; supported:"
            " null",
            param="sliding_window",
        )
    return Architecture(family="decoder", name=name, config=config)


def read_pplx(fields: Fields, name: str) -> Architecture:
    """Qwen3 as pplx-embed uses it: bidirectional, with its own int8 recipe."""
    fields.require("use_bidirectional_attention", True)
    _check_no_window(fields)
    fields.require("attention_bias", False)
    config = _config(fields, causal=False, qk_norm=True)
    return Architecture(
        family="decoder",
        name=name,
        config=config,
        quantizer="pplx",
        separates_chunks=_is_contextual(fields),
    )


def _is_contextual(fields: Fields) -> bool:
    """pplx-embed-context-v1 and pplx-embed-v1 differ in the class that auto_map names alone."""
    auto_map = fields.values.get("auto_map")
    name = auto_map.get("AutoModel") if isinstance(auto_map, dict) else None
    return isinstance(name, str) and name.rsplit(".", 1)[-1] == _CONTEXTUAL_CLASS


def _check_no_window(fields: Fields) -> None:
    fields.require("use_sliding_window", False)
    for layer_type in fields.values.get("layer_types") or []:
        if layer_type != "full_attention":
            raise unsupported(fields.path, "layer_types", layer_type, ("full_attention",))


def _config(
    fields: Fields,
    *,
    causal: bool | None = None,
    qk_norm: bool = False,
    qkv_bias: bool = False,
    window: int | None = None,
) -> DecoderConfig:
    fields.require("hidden_act", "silu")
    rope = read_rope(fields)
    config = fields.convert(
        DecoderConfig,
        **({} if qk_norm else _older_defaults(fields)),
        rope_theta=rope.theta,
        rope_scaling=rope.scaling,
        max_position_embeddings=rope.longest,
        is_causal=is_causal(fields) if causal is None else causal,
        qk_norm=qk_norm,
        qkv_bias=qkv_bias,
        window=window,
    )
    if config.num_attention_heads % config.num_key_value_heads:
        raise invalid(
            f"{fields.path}: num_attention_heads ({config.num_attention_heads}) must be a multiple"
            f" of num_key_value_heads ({config.num_key_value_heads})",
            param="num_attention_heads",
        )
    if config.head_dim % 2:
        raise invalid(
            f"{fields.path}: head_dim ({config.head_dim}) must be even: rotary embedding turns"
            " pairs",
            param="head_dim",
        )
    return config


def _older_defaults(fields: Fields) -> dict[str, object]:
    """What files from before grouped heads and free head dims leave out. Not so for Qwen3."""
    heads = fields.count("num_attention_heads")
    made: dict[str, object] = {}
    if fields.values.get("num_key_value_heads") is None:
        made["num_key_value_heads"] = heads
    if fields.values.get("head_dim") is None:
        fields.divisible("hidden_size", "num_attention_heads")
        made["head_dim"] = fields.count("hidden_size") // heads
    return made


def is_causal(fields: Fields) -> bool:
    """Causal unless the file says otherwise in one of the two ways there are."""
    fields.require("is_causal", True, False)
    fields.require("use_bidirectional_attention", False, True)
    return (
        fields.values.get("use_bidirectional_attention") is not True
        and fields.values.get("is_causal") is not False
    )


TYPES: dict[str, ModelType] = {
    "llama": ModelType(
        "decoder",
        read_llama,
        (
            "LlamaModel",
            "LlamaForCausalLM",
            "LlamaForSequenceClassification",
        ),
        example="embedders on a Llama 2 or 3 backbone",
        heads={"LlamaForSequenceClassification": "decoder"},
    ),
    "llama_bidirec": ModelType(
        "decoder",
        read_llama_bidirec,
        ("LlamaBidirectionalModel",),
        example="llama-nemotron-embed",
    ),
    "eurobert": ModelType(
        "decoder",
        read_eurobert,
        (
            "EuroBertModel",
            "EuroBertForMaskedLM",
        ),
        example="embedders on EuroBERT 210m, 610m, 2.1B",
    ),
    "mistral": ModelType(
        "decoder",
        read_mistral,
        (
            "MistralModel",
            "MistralForCausalLM",
            "MistralForSequenceClassification",
        ),
        example="e5-mistral, SFR-Embedding-Mistral, Linq-Embed-Mistral",
        heads={"MistralForSequenceClassification": "decoder"},
    ),
    "qwen2": ModelType(
        "decoder",
        read_qwen2,
        (
            "Qwen2Model",
            "Qwen2ForCausalLM",
            "Qwen2ForSequenceClassification",
        ),
        example="gte-Qwen2 (`is_causal` false: bidirectional), mxbai-rerank-v2",
        heads={"Qwen2ForCausalLM": "yes_no", "Qwen2ForSequenceClassification": "decoder"},
    ),
    "qwen3": ModelType(
        "decoder",
        read_qwen3,
        (
            "Qwen3Model",
            "Qwen3ForCausalLM",
            "Qwen3ForSequenceClassification",
            PPLX_CLASS,
        ),
        example=("Qwen3-Embedding (bidirectional with `is_causal` false), Qwen3-Reranker"),
        heads={"Qwen3ForCausalLM": "yes_no", "Qwen3ForSequenceClassification": "decoder"},
    ),
    "bidirectional_pplx_qwen3": ModelType(
        "decoder",
        read_pplx,
        (PPLX_CLASS,),
        example="pplx-embed-v1, pplx-embed-context-v1 (rows of chunks)",
    ),
}
"""By ``model_type``."""
