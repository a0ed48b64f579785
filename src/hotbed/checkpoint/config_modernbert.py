"""config.json of ModernBERT."""

from __future__ import annotations

from hotbed.checkpoint.config_fields import Architecture, Fields, ModelType
from hotbed.checkpoint.config_rope import read_layer_rope
from hotbed.checkpoint.records import ModernBertConfig
from hotbed.core.errors import invalid

_DEFAULT_EVERY = 3  # transformers' global_attn_every_n_layers


def read_modernbert(fields: Fields, name: str) -> Architecture:
    """ModernBERT as published: no biases, exact GELU, local attention of an even width."""
    fields.require("hidden_activation", "gelu")
    fields.require("rope_scaling", None)
    for field in ("attention_bias", "mlp_bias", "norm_bias"):
        fields.require(field, False)
    every = fields.values.get("global_attn_every_n_layers", _DEFAULT_EVERY)
    if not isinstance(every, int) or every < 1:
        raise invalid(
            f"{fields.path}: global_attn_every_n_layers is {every!r}; it must be at least 1",
            param="global_attn_every_n_layers",
        )
    config = fields.convert(
        ModernBertConfig,
        global_theta=read_layer_rope(fields, "full_attention", "global_rope_theta").theta,
        local_theta=read_layer_rope(fields, "sliding_attention", "local_rope_theta").theta,
        # The whole width is stated; half of it lies on either side of a token.
        window=fields.count("local_attention") // 2,
        is_local=fields.layer_types(lambda layer: layer % every > 0),
    )
    fields.divisible("hidden_size", "num_attention_heads")
    return Architecture(family="modernbert", name=name, config=config)


TYPES: dict[str, ModelType] = {
    "modernbert": ModelType(
        "modernbert",
        read_modernbert,
        (
            "ModernBertModel",
            "ModernBertForMaskedLM",
            "ModernBertForSequenceClassification",
        ),
        example="gte-modernbert, ettin, modernbert-embed; gte-reranker-modernbert",
        heads={"ModernBertForSequenceClassification": "modernbert"},
    ),
}
"""By ``model_type``."""
