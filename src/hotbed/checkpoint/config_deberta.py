"""config.json of DeBERTa-v2 and v3."""

from __future__ import annotations

from hotbed.checkpoint.config_fields import Architecture, Fields, ModelType
from hotbed.checkpoint.folder import unsupported
from hotbed.checkpoint.records import DebertaConfig

_BOTH = ("c2p", "p2c")


def read_deberta(fields: Fields, name: str) -> Architecture:
    """The v3 form: distances alone say where tokens are, by projections shared with the content.

    DeBERTa-v2 xlarge and xxlarge have a convolution behind the first layer and are refused.
    """
    fields.require("hidden_act", "gelu")
    fields.require("conv_kernel_size", 0)
    fields.require("embedding_size", fields.count("hidden_size"))
    fields.require("type_vocab_size", 0)
    # Absent, these mean something else to transformers.
    fields.require_stated("relative_attention", True)
    fields.require_stated("position_biased_input", False)
    fields.require_stated("share_att_key", True)
    fields.require_stated("norm_rel_ebd", "layer_norm")
    kinds = fields.values.get("pos_att_type")
    listed = kinds.split("|") if isinstance(kinds, str) else kinds
    if not isinstance(listed, list) or sorted(map(str, listed)) != sorted(_BOTH):
        raise unsupported(fields.path, "pos_att_type", kinds, (list(_BOTH),))
    fields.require("max_relative_positions", -1, fields.count("max_position_embeddings"))
    fields.count("position_buckets")
    config = fields.convert(DebertaConfig)
    fields.divisible("hidden_size", "num_attention_heads")
    fields.require("attention_head_size", config.head_dim)
    return Architecture(family="deberta", name=name, config=config)


TYPES: dict[str, ModelType] = {
    "deberta-v2": ModelType(
        "deberta",
        read_deberta,
        (
            "DebertaV2Model",
            "DebertaV2ForMaskedLM",
            "DebertaV2ForSequenceClassification",
        ),
        example="DeBERTa-v3: mxbai-rerank v1, nli-deberta-v3 and other classifiers",
        heads={"DebertaV2ForSequenceClassification": "deberta"},
    ),
}
"""By ``model_type``."""
