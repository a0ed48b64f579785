"""config.json of BERTs with rotary positions and a gated MLP: Nomic's and GTE's."""

from __future__ import annotations

from hotbed.checkpoint.config_fields import Architecture, Fields
from hotbed.checkpoint.config_rope import read_rope_theta
from hotbed.checkpoint.records import RotaryBertConfig

# Nomic's files name things as GPT-2 did; transformers' own form of them as BERT does.
_NOMIC_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
    "rope_theta": "rotary_emb_base",
}
_NOMIC_OFF = (
    "causal",
    "mlp_fc1_bias",
    "mlp_fc2_bias",
    "parallel_block",
    "prenorm",
    "qkv_proj_bias",
    "rotary_emb_interleaved",
    "use_rms_norm",
)


def read_nomic_bert(fields: Fields, name: str) -> Architecture:
    """Nomic's BERT, in either form of its files; without experts.

    A model with rotary_scaling_factor stretches its rotation by the length of the batch, and only
    above max_trained_positions: it is served up to there, where nothing is stretched.
    """
    values = fields.values
    renamed = {new: values[old] for new, old in _NOMIC_NAMES.items() if old in values}
    both = Fields(fields.path, values | renamed)
    both.require("activation_function", "swiglu")
    both.require("hidden_act", "silu")
    both.require("rotary_emb_fraction", 1.0)
    both.require("rotary_emb_scale_base", None)
    both.require("num_experts", None, 0)
    for field in _NOMIC_OFF:
        both.require(field, False)
    longest = both.count("max_position_embeddings")
    if values.get("rotary_scaling_factor") is not None:
        longest = min(longest, both.count("max_trained_positions"))
    return _architecture(both, name, naming="nomic", gate="silu", longest=longest)


def read_gte(fields: Fields, name: str) -> Architecture:
    """GTE's, as arctic-embed-m-v2.0 is."""
    fields.require("hidden_act", "gelu")
    fields.require("position_embedding_type", "rope")
    fields.require("layer_norm_type", "layer_norm")
    fields.require("logn_attention_scale", False)
    fields.require("pack_qkv", True)
    longest = fields.count("max_position_embeddings")
    return _architecture(fields, name, naming="gte", gate="gelu", longest=longest)


def _architecture(
    fields: Fields, name: str, *, naming: str, gate: str, longest: int
) -> Architecture:
    config = fields.convert(
        RotaryBertConfig,
        max_position_embeddings=longest,
        rope_theta=read_rope_theta(fields),
        naming=naming,
        gate=gate,
    )
    fields.divisible("hidden_size", "num_attention_heads")
    return Architecture(family="rotary_bert", name=name, config=config)
