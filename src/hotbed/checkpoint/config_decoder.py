"""config.json of decoders as embedders: Qwen3, and pplx-embed, which is Qwen3 inside."""

from __future__ import annotations

from hotbed.checkpoint.config_fields import Architecture, Fields
from hotbed.checkpoint.config_rope import read_rope_theta
from hotbed.checkpoint.folder import unsupported
from hotbed.checkpoint.records import Qwen3Config
from hotbed.core.errors import invalid

_QWEN3_CLASSES = ("Qwen3Model", "Qwen3ForCausalLM")
_PPLX_CLASSES = ("PPLXQwen3Model",)
_CONTEXTUAL_CLASS = "PPLXQwen3ContextualModel"
PPLX_TYPE = "bidirectional_pplx_qwen3"


def read_qwen3(fields: Fields) -> Architecture:
    """Qwen3, causal or bidirectional."""
    architectures = fields.values.get("architectures")
    if isinstance(architectures, list) and architectures[:1] == list(_PPLX_CLASSES):
        return read_pplx(fields)
    name = fields.class_name(_QWEN3_CLASSES)
    return Architecture(family="qwen3", name=name, config=_config(fields))


def read_pplx(fields: Fields) -> Architecture:
    """Qwen3 as pplx-embed uses it: bidirectional, with its own int8 recipe."""
    name = fields.class_name(_PPLX_CLASSES)
    fields.require("use_bidirectional_attention", True)
    config = _config(fields, is_causal=False)
    return Architecture(
        family="qwen3",
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


def _config(fields: Fields, *, is_causal: bool | None = None) -> Qwen3Config:
    fields.require("hidden_act", "silu")
    fields.require("attention_bias", False)
    fields.require("use_sliding_window", False)
    for layer_type in fields.values.get("layer_types") or []:
        if layer_type != "full_attention":
            raise unsupported(fields.path, "layer_types", layer_type, ("full_attention",))
    config = fields.convert(
        Qwen3Config,
        rope_theta=read_rope_theta(fields),
        is_causal=_is_causal(fields) if is_causal is None else is_causal,
    )
    fields.divisible("num_attention_heads", "num_key_value_heads")
    if config.head_dim % 2:
        raise invalid(
            f"{fields.path}: head_dim ({config.head_dim}) must be even: rotary embedding turns"
            " pairs",
            param="head_dim",
        )
    return config


def _is_causal(fields: Fields) -> bool:
    """Causal unless the file says otherwise in one of the two ways there are."""
    fields.require("is_causal", True, False)
    fields.require("use_bidirectional_attention", False, True)
    return (
        fields.values.get("use_bidirectional_attention") is not True
        and fields.values.get("is_causal") is not False
    )
