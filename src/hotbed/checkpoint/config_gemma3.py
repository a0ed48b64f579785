"""config.json of Gemma 3's text model, as EmbeddingGemma uses it."""

from __future__ import annotations

from hotbed.checkpoint.config_decoder import is_causal
from hotbed.checkpoint.config_fields import Architecture, Fields, ModelType
from hotbed.checkpoint.config_rope import read_layer_rope
from hotbed.checkpoint.records import Gemma3Config

_DEFAULT_EVERY = 6  # transformers' sliding_window_pattern


def read_gemma3(fields: Fields, name: str) -> Architecture:
    """Gemma 3 text, causal or bidirectional."""
    fields.require("hidden_activation", "gelu_pytorch_tanh")
    fields.require("attention_bias", False)
    fields.require("attn_logit_softcapping", None)
    # Scores are scaled by this; attention backends scale by the head dim.
    fields.require("query_pre_attn_scalar", fields.count("head_dim"))
    causal = is_causal(fields)
    width = fields.count("sliding_window")
    every = _DEFAULT_EVERY
    if fields.values.get("sliding_window_pattern") is not None:
        every = fields.count("sliding_window_pattern")
    rope = read_layer_rope(fields, "full_attention", "rope_theta", scaled=True)
    config = fields.convert(
        Gemma3Config,
        is_causal=causal,
        # One sided it counts the token itself, two sided half of it lies on either side.
        window=width - 1 if causal else width // 2,
        is_local=fields.layer_types(lambda layer: (layer + 1) % every > 0),
        global_theta=rope.theta,
        global_scaling=rope.scaling,
        local_theta=read_layer_rope(fields, "sliding_attention", "rope_local_base_freq").theta,
        max_position_embeddings=rope.longest,
    )
    fields.divisible("num_attention_heads", "num_key_value_heads")
    return Architecture(family="gemma3", name=name, config=config)


TYPES: dict[str, ModelType] = {
    "gemma3_text": ModelType(
        "gemma3",
        read_gemma3,
        (
            "Gemma3TextModel",
            "Gemma3ForCausalLM",
        ),
        example="EmbeddingGemma",
    ),
}
"""By ``model_type``."""
