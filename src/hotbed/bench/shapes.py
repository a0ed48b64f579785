"""Full-size model shapes with seeded random weights, for measuring where no real weights are."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from hotbed.bench.cost import Cost
from hotbed.checkpoint.records import BertConfig, DecoderConfig
from hotbed.doctor import plain
from hotbed.rose.recipe import Recipe
from hotbed.rose.registry import FAMILIES
from hotbed.rose.weights import WeightMap


@dataclass(frozen=True)
class Shape:
    """A model's shape and how its rows are made."""

    name: str
    family: str
    config: Any
    recipe: Recipe
    task: Literal["embed", "score"] = "embed"

    def weight_map(self) -> WeightMap:
        return FAMILIES[self.family].weight_map(self.config)

    def cost(self) -> Cost:
        """What a pass costs."""
        return Cost.of(self.weight_map(), self.config)


def _qwen3(hidden: int, layers: int, heads: int, ffn: int, *, causal: bool) -> DecoderConfig:
    return DecoderConfig(
        vocab_size=151_936,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=ffn,
        max_position_embeddings=32_768,
        rope_theta=1e6,
        is_causal=causal,
        qk_norm=True,
    )


SHAPES = {
    s.name: s
    for s in (
        Shape(
            "pplx-embed-0.6b",
            "decoder",
            _qwen3(1024, 28, 16, 3072, causal=False),
            Recipe("mean", False, "pplx"),
        ),
        Shape(
            "qwen3-embedding-0.6b",
            "decoder",
            _qwen3(1024, 28, 16, 3072, causal=True),
            Recipe("last", True, "none"),
        ),
        Shape(
            "qwen3-embedding-4b",
            "decoder",
            _qwen3(2560, 36, 32, 9728, causal=True),
            Recipe("last", True, "none"),
        ),
        Shape(
            "qwen3-reranker-0.6b",
            "decoder",
            _qwen3(1024, 28, 16, 3072, causal=True),
            Recipe("last", False, "none"),
            "score",
        ),
        # XLM-R large as BERT: the same layers; only the embeddings' indexing differs.
        Shape(
            "bge-m3",
            "bert",
            BertConfig(
                vocab_size=250_002,
                hidden_size=1024,
                num_hidden_layers=24,
                num_attention_heads=16,
                intermediate_size=4096,
                max_position_embeddings=8194,
                type_vocab_size=1,
                layer_norm_eps=1e-5,
            ),
            Recipe("cls", True, "none"),
        ),
    )
}


def random_weights(shape: Shape, device: torch.device, seed: int = 0) -> dict[str, Tensor]:
    """bfloat16 parameters by name."""
    return plain.random_weights(shape.weight_map(), device, seed=seed)


def tiny(shape: Shape) -> Shape:
    """The same kind of model with two narrow layers."""
    small: dict[str, Any] = {
        "vocab_size": 2048,
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 256,
        "max_position_embeddings": 512,
    }
    if shape.family == "decoder":
        small |= {"num_key_value_heads": 1, "head_dim": 64}
    return dataclasses.replace(shape, config=msgspec.structs.replace(shape.config, **small))
