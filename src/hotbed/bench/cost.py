"""What a pass through a model must cost at least: FLOPs, bytes, and from them the floor in time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hotbed.rose.weights import WeightMap

_LAYERS = "layers."


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one model.

    Attributes:
        linear_elements: weights of the layers' matrices.
        layer_elements: all weights of the layers; embeddings are looked up, not read whole.
        attention_width: layers x heads x head dim.
        causal: whether a token sees only those before it.
    """

    linear_elements: int
    layer_elements: int
    attention_width: int
    causal: bool

    @classmethod
    def of(cls, weight_map: WeightMap, config: Any) -> Cost:
        """Of a family's weight map and config record."""
        shapes = [p.shape for n, p in weight_map.parameters.items() if n.startswith(_LAYERS)]
        return cls(
            linear_elements=sum(math.prod(shape) for shape in shapes if len(shape) == 2),
            layer_elements=sum(math.prod(shape) for shape in shapes),
            attention_width=config.num_hidden_layers * config.num_attention_heads * config.head_dim,
            causal=bool(getattr(config, "is_causal", False)),
        )

    def matmul_flops(self, lengths: Sequence[int]) -> float:
        """FLOPs of one pass: 2 an element of each linear layer and token, and attention's two
        products, 4 * length^2 * heads * head dim a layer (half when causal).
        """
        square = sum(n * n for n in lengths) * (0.5 if self.causal else 1.0)
        return 2.0 * self.linear_elements * sum(lengths) + 4 * square * self.attention_width

    def weight_bytes(self, bytes_per_element: int = 2) -> float:
        """Bytes of the layers' weights: what one step has to read at least."""
        return float(bytes_per_element * self.layer_elements)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the device was measured to reach, in this run.

    Attributes:
        read_bytes_per_s: from its memory.
        matmul_flops: of a large product in the type that the models compute in.
        bytes_per_element: of that type.
    """

    read_bytes_per_s: float
    matmul_flops: float
    bytes_per_element: int

    def floor_s(self, cost: Cost, lengths: Sequence[int]) -> float:
        """The larger of weight bytes over the read rate and FLOPs over the matmul rate."""
        return max(
            cost.weight_bytes(self.bytes_per_element) / self.read_bytes_per_s,
            cost.matmul_flops(lengths) / self.matmul_flops,
        )
