"""config.json of T5, of which embedders have the encoder."""

from __future__ import annotations

from hotbed.checkpoint.config_fields import Architecture, Fields, ModelType
from hotbed.checkpoint.records import T5Config

_NAMES = {
    "hidden_size": "d_model",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "head_dim": "d_kv",
    "intermediate_size": "d_ff",
    "max_position_embeddings": "n_positions",
}


def read_t5(fields: Fields, name: str) -> Architecture:
    """T5's first form, with a ReLU, and that of 1.1, gated.

    Its distances know no end: n_positions is what it was trained on, 512 where the file has none.
    """
    fields.require("feed_forward_proj", "relu", "gated-gelu")
    fields.require("relative_attention_max_distance", 128)
    values = {new: fields.values[old] for new, old in _NAMES.items() if old in fields.values}
    config = fields.convert(
        T5Config,
        **values,
        is_gated=fields.values.get("feed_forward_proj") == "gated-gelu",
    )
    return Architecture(family="t5", name=name, config=config)


TYPES: dict[str, ModelType] = {
    "t5": ModelType(
        "t5",
        read_t5,
        ("T5EncoderModel", "T5Model", "T5ForConditionalGeneration"),
        example="the encoder: sentence-t5, gtr-t5",
    ),
}
"""By ``model_type``."""
