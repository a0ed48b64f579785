"""config.json of BERTs with rotary positions and a gated MLP: Nomic's and GTE's."""

from __future__ import annotations

from hotbed.checkpoint.config_fields import Architecture, Fields, ModelType
from hotbed.checkpoint.config_rope import Rope, read_rope
from hotbed.checkpoint.folder import unsupported
from hotbed.checkpoint.records import RotaryBertConfig
from hotbed.core.rope import DynamicScaling

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
_DEFAULT_GTE_TYPES = 1  # transformers' GteConfig
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

    rotary_scaling_factor stretches the rotation of what is longer than max_trained_positions: there
    by the length of the batch, here by the text's own.
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
    rope = read_rope(both)
    if values.get("rotary_scaling_factor") is not None:
        scaling = DynamicScaling(
            factor=both.number("rotary_scaling_factor"),
            original_max_position_embeddings=both.count("max_trained_positions"),
        )
        rope = rope._replace(scaling=scaling)
    return _architecture(both, name, rope, naming="nomic", gate="silu")


def read_gte(fields: Fields, name: str) -> Architecture:
    """GTE's, under its first name, "new", or today's, as arctic-embed-m-v2.0 is."""
    fields.require("hidden_act", "gelu")
    fields.require("position_embedding_type", "rope")
    fields.require("layer_norm_type", "layer_norm")
    fields.require("logn_attention_scale", False)
    fields.require("pack_qkv", True)
    types = fields.values.get("type_vocab_size", _DEFAULT_GTE_TYPES)
    if name.endswith("ForSequenceClassification") and types not in (0, 1):
        raise unsupported(fields.path, "type_vocab_size", types, (0, 1))
    fields = Fields(fields.path, fields.values | {"type_vocab_size": types})
    return _architecture(fields, name, read_rope(_without_ntk(fields)), naming="gte", gate="gelu")


def _without_ntk(fields: Fields) -> Fields:
    """The same rotation in today's words, where the file has GTE's own for it.

    "ntk" with factor s turns pair i of a head of H by (s theta)^(-2i/H) / s^(2/H), which is another
    base and linear scaling. It holds for texts of any length (Su 2023, kexue.fm/archives/9706).
    """
    scaling = fields.values.get("rope_scaling")
    if not isinstance(scaling, dict) or scaling.get("type") != "ntk":
        return fields
    inner = Fields(fields.path, {f"rope_scaling.{key}": value for key, value in scaling.items()})
    inner.require("rope_scaling.mixed_b", None)
    factor = inner.number("rope_scaling.factor")
    head_dim = fields.count("hidden_size") // fields.count("num_attention_heads")
    changes = {
        "rope_theta": fields.number("rope_theta") * factor,
        "rope_scaling": {"type": "linear", "factor": factor ** (2 / head_dim)},
    }
    return Fields(fields.path, fields.values | changes)


def _architecture(fields: Fields, name: str, rope: Rope, *, naming: str, gate: str) -> Architecture:
    config = fields.convert(
        RotaryBertConfig,
        max_position_embeddings=rope.longest,
        rope_theta=rope.theta,
        rope_scaling=rope.scaling,
        naming=naming,
        gate=gate,
    )
    fields.divisible("hidden_size", "num_attention_heads")
    return Architecture(family="rotary_bert", name=name, config=config)


TYPES: dict[str, ModelType] = {
    "nomic_bert": ModelType(
        "rotary_bert",
        read_nomic_bert,
        (
            "NomicBertModel",
            "NomicBertForMaskedLM",
        ),
        example="nomic-embed-text v1 and v1.5, arctic-embed-m-long",
    ),
    "gte": ModelType(
        "rotary_bert",
        read_gte,
        (
            "GteModel",
            "GteForMaskedLM",
            "GteForSequenceClassification",
            "NewModel",
            "NewForMaskedLM",
            "NewForSequenceClassification",
        ),
        example="arctic-embed-m-v2.0",
        heads={"GteForSequenceClassification": "bert", "NewForSequenceClassification": "bert"},
    ),
    "new": ModelType(
        "rotary_bert",
        read_gte,
        (
            "NewModel",
            "NewForMaskedLM",
            "NewForSequenceClassification",
        ),
        example=(
            "gte-base-en-v1.5, gte-large-en-v1.5, gte-multilingual-base;"
            " gte-multilingual-reranker-base"
        ),
        heads={"NewForSequenceClassification": "bert"},
    ),
}
"""By ``model_type``."""
