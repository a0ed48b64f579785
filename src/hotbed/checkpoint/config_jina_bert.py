"""config.json of Jina's BERT: jina-embeddings-v2. Its type is BERT's, its classes are not."""

from __future__ import annotations

from hotbed.checkpoint.config_fields import Architecture, Fields, ModelType
from hotbed.checkpoint.records import JinaBertConfig

JINA_CLASSES = ("JinaBertModel", "JinaBertForMaskedLM")


def read_jina_bert(fields: Fields, name: str) -> Architecture:
    """With ALiBi and a GeGLU, as published. jina-embeddings-v2-base-code has norms on q and k under
    the same fields: its tensors refuse it.
    """
    fields.require_stated("position_embedding_type", "alibi")
    fields.require_stated("feed_forward_type", "geglu")
    fields.require("hidden_act", "gelu")
    fields.require("is_decoder", False)
    config = fields.convert(JinaBertConfig)
    fields.divisible("hidden_size", "num_attention_heads")
    return Architecture(family="jina_bert", name=name, config=config)


TYPES: dict[str, ModelType] = {
    "jina_bert": ModelType(
        "jina_bert",
        read_jina_bert,
        JINA_CLASSES,
        example="jina-embeddings-v2 (small, base), whose files say `bert`",
    ),
}
"""By ``model_type``."""
