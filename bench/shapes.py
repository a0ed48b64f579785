"""Full-size model shapes with seeded random weights, for measuring where no real weights are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

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

    def weight_map(self) -> WeightMap:
        return FAMILIES[self.family].weight_map(self.config)

    def matmul_flops(self, lengths: list[int]) -> float:
        """FLOPs of one pass: 2 an element of each linear layer and token, and attention's two
        products, 4 * length^2 * heads * head dim a layer (half when causal)."""
        linear = sum(
            p.shape[0] * p.shape[1]
            for name, p in self.weight_map().parameters.items()
            if len(p.shape) == 2 and name.startswith("layers.")
        )
        c = self.config
        square = sum(n * n for n in lengths) * (0.5 if getattr(c, "is_causal", False) else 1.0)
        attention = 4 * square * c.num_attention_heads * c.head_dim * c.num_hidden_layers
        return 2.0 * linear * sum(lengths) + attention

    def weight_bytes(self, bytes_per_element: int = 2) -> float:
        """Bytes of the layers' weights: what one step has to read at least (no embeddings)."""
        return bytes_per_element * sum(
            torch.Size(p.shape).numel()
            for name, p in self.weight_map().parameters.items()
            if name.startswith("layers.")
        )


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
    return plain.random_weights(shape.weight_map(), device, seed)
