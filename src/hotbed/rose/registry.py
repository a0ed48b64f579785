"""The model families ROSE can run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.models import bert, qwen3
from hotbed.rose.weights import WeightMap


class Model(Protocol):
    """What the engine needs of a model."""

    def forward(self, batch: PackedBatch) -> Tensor:
        """Packed tokens to the final states [T, D]."""
        ...


@dataclass(frozen=True, slots=True)
class Family:
    """How to load and build the models of one family; `config` is the family's own record."""

    weight_map: Callable[[Any], WeightMap]
    attention_spec: Callable[[Any], AttentionSpec]
    build: Callable[[Any, dict[str, Tensor], AttentionBackend], Model]
    pair_offset: Callable[[Any], int] = lambda _: 0
    """Of the positions of second texts, see `hotbed.rose.batch`; 0: no token types."""


FAMILIES: dict[str, Family] = {
    "bert": Family(bert.weight_map, bert.attention_spec, bert.build, bert.pair_offset),
    "qwen3": Family(qwen3.weight_map, qwen3.attention_spec, qwen3.build),
}
