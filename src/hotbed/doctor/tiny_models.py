"""A tiny model of every family, with the head dims and masks of real ones, for its proof."""

from __future__ import annotations

from typing import Any

from hotbed.checkpoint.records import (
    BertConfig,
    DebertaConfig,
    DecoderConfig,
    Gemma3Config,
    JinaBertConfig,
    ModernBertConfig,
    MpnetConfig,
    RotaryBertConfig,
    T5Config,
)
from hotbed.core.rope import DynamicScaling
from hotbed.rose.recipe import Recipe

MAX_TOKENS = 256
_SIZE: dict[str, Any] = {
    "vocab_size": 1000,
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "max_position_embeddings": MAX_TOKENS,
}
_WINDOW = 16

MODELS: dict[str, tuple[Any, Recipe]] = {
    "bert": (BertConfig(**_SIZE), Recipe("cls", True, "none")),
    "deberta": (DebertaConfig(**_SIZE, position_buckets=32), Recipe("cls", True, "none")),
    "decoder": (
        DecoderConfig(
            **_SIZE,
            num_key_value_heads=2,
            head_dim=128,
            rope_theta=1e6,
            is_causal=False,
            qk_norm=True,
        ),
        Recipe("mean", True, "none"),
    ),
    "gemma3": (
        Gemma3Config(
            **_SIZE,
            num_key_value_heads=2,
            head_dim=128,
            global_theta=1e6,
            local_theta=1e4,
            window=_WINDOW,
            is_local=(True, False),
            is_causal=False,
        ),
        Recipe("mean", True, "none"),
    ),
    "jina_bert": (JinaBertConfig(**_SIZE), Recipe("mean", True, "none")),
    "modernbert": (
        ModernBertConfig(
            **_SIZE,
            global_theta=160_000.0,
            local_theta=10_000.0,
            window=_WINDOW,
            is_local=(False, True),
        ),
        Recipe("mean", True, "none"),
    ),
    "mpnet": (
        MpnetConfig(**_SIZE | {"max_position_embeddings": MAX_TOKENS + 2}),
        Recipe("mean", True, "none"),
    ),
    "t5": (T5Config(**_SIZE, head_dim=64, is_gated=True), Recipe("mean", True, "none")),
    "rotary_bert": (
        RotaryBertConfig(
            **_SIZE,
            rope_theta=10_000.0,
            rope_scaling=DynamicScaling(factor=2.0, original_max_position_embeddings=64),
            gate="gelu",
            naming="gte",
            type_vocab_size=1,
        ),
        Recipe("last", True, "none"),
    ),
}
"""By the name of the family in the registry: its record and how its states become a row."""
NORM_MEAN = {"gemma3": 0.0}
"""Of the norms' weights, where it is not 1."""
