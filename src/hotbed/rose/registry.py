"""The model families ROSE can run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.models import (
    bert,
    bert_weights,
    deberta,
    decoder,
    gemma3,
    jina_bert,
    modernbert,
    mpnet,
    rotary_bert,
    t5,
)
from hotbed.rose.weights import WeightMap


class Model(Protocol):
    """What the engine needs of a model."""

    def forward(self, batch: PackedBatch) -> Tensor:
        """Packed tokens to the final states [T, D]."""
        ...


@dataclass(frozen=True, slots=True)
class Family:
    """How to load and build the models of one family, each from the family's own config record.

    Attributes:
        weight_map: parameters by name, and the stored tensors they come from.
        attention_specs: what each kind of attention layer asks of its backend; one kind or two,
            or none if the model brings its own.
        build: from config, parameters and a backend for each kind.
        pair_offset: of the positions of second texts, see `hotbed.rose.batch`; 0: no token types.
    """

    weight_map: Callable[[Any], WeightMap]
    attention_specs: Callable[[Any], tuple[AttentionSpec, ...]]
    build: Callable[[Any, dict[str, Tensor], Sequence[AttentionBackend]], Model]
    pair_offset: Callable[[Any], int] = lambda _: 0


FAMILIES: dict[str, Family] = {
    "bert": Family(bert_weights.weight_map, bert.attention_specs, bert.build, bert.pair_offset),
    "deberta": Family(deberta.weight_map, deberta.attention_specs, deberta.build),
    "decoder": Family(decoder.weight_map, decoder.attention_specs, decoder.build),
    "gemma3": Family(gemma3.weight_map, gemma3.attention_specs, gemma3.build),
    "jina_bert": Family(jina_bert.weight_map, jina_bert.attention_specs, jina_bert.build),
    "modernbert": Family(modernbert.weight_map, modernbert.attention_specs, modernbert.build),
    "mpnet": Family(mpnet.weight_map, mpnet.attention_specs, mpnet.build),
    "rotary_bert": Family(rotary_bert.weight_map, rotary_bert.attention_specs, rotary_bert.build),
    "t5": Family(t5.weight_map, t5.attention_specs, t5.build),
}
