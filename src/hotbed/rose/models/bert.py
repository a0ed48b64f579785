"""BERT, RoBERTa, XLM-R, DistilBERT: a bidirectional encoder, learned positions, post-layer norms.

    h = LayerNorm(word + position + segment)
    for each layer:  h = LayerNorm(h + attention(h));  h = LayerNorm(h + W2 gelu(W1 h))

RoBERTa and XLM-R differ in where positions start, DistilBERT in names and in having no segments.
Sources: Devlin et al. 2018, arXiv 1810.04805; Liu et al. 2019, arXiv 1907.11692; Conneau et al.
2019, arXiv 1911.02116; Sanh et al. 2019, arXiv 1910.01108.
Legend: T tokens, D hidden, F mlp dim.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hotbed.checkpoint.records import BertConfig
from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.embedding import NormedEmbedding
from hotbed.rose.layers.fp8_linear import Activations, wide
from hotbed.rose.layers.linear import Activation
from hotbed.rose.layers.post_norm import PostNormLayer
from hotbed.rose.layers.short_encoder import ShortLayer, ShortSettings, short_encoder
from hotbed.rose.layers.small_encoder import small_encoder

_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


def attention_spec(config: BertConfig) -> AttentionSpec:
    """What the model asks of its attention backend."""
    heads = config.num_attention_heads
    return AttentionSpec(
        num_heads=heads, num_kv_heads=heads, head_dim=config.head_dim, causal=False
    )


def attention_specs(config: BertConfig) -> tuple[AttentionSpec, ...]:
    """Registry entry: all layers are of one kind."""
    return (attention_spec(config),)


def pair_offset(config: BertConfig) -> int:
    """Rows of the position table for one segment; 0 if the model knows one segment only."""
    return config.longest_sequence if config.type_vocab_size > 1 else 0


class Bert:
    """The encoder; `forward` gives the last layer's states.

    Args:
        config: of the checkpoint.
        weights: by the names of `weight_map`.
        backend: of the attention.
        short: of the path for short steps; None takes the defaults.
    """

    def __init__(
        self,
        config: BertConfig,
        weights: dict[str, Tensor],
        backend: AttentionBackend,
        short: ShortSettings | None = None,
    ) -> None:
        self._backend = backend
        self._spec = attention_spec(config)
        self._word = weights["word"]
        norm_weight, norm_bias = _pair(weights, "embedding_norm")
        self._position = _positions(config, weights)
        self._embedding = NormedEmbedding(
            self._word,
            self._position,
            norm_weight=norm_weight,
            norm_bias=norm_bias,
            eps=config.layer_norm_eps,
        )
        self._layers = [
            PostNormLayer(
                weights,
                f"layers.{i}",
                spec=self._spec,
                backend=backend,
                eps=config.layer_norm_eps,
                activation=_ACTIVATIONS[config.hidden_act],
            )
            for i in range(config.num_hidden_layers)
        ]

        self._short, self._small = None, None
        if _ACTIVATIONS[config.hidden_act] == "gelu":
            layers = [_short_layer(weights, f"layers.{i}") for i in range(config.num_hidden_layers)]
            self._short = short_encoder(
                layers,
                self._spec,
                eps=config.layer_norm_eps,
                reference=self._run_layers,
                settings=short or ShortSettings(),
            )
            self._small = small_encoder(
                layers, (norm_weight, norm_bias), self._spec, eps=config.layer_norm_eps
            )

    def forward(self, batch: PackedBatch) -> Tensor:
        """Packed tokens to states [T, D]."""
        if self._small is not None and self._small.takes(batch):
            return self._small(batch, self._word, self._position)
        short = self._short if self._short is not None and self._short.takes(batch) else None
        x_TD = self._embedding(batch.token_ids, batch.positions)
        return self._run_layers(x_TD, batch) if short is None else short(x_TD, batch)

    def _run_layers(self, x_TD: Tensor, batch: PackedBatch) -> Tensor:
        plan = self._backend.plan(batch, self._spec)
        states: Activations = x_TD
        for layer in self._layers:
            states = layer(states, plan)
        return wide(states)


def _positions(config: BertConfig, weights: dict[str, Tensor]) -> Tensor:
    """Rows of the positions in use. The segment's row joins them: a table for first texts, then one
    for second. DistilBERT has no segments.
    """
    positions = weights["position"][config.position_offset :]
    if "segment" not in weights:
        return positions
    return torch.cat([positions + row for row in weights["segment"][:2]])


def _short_layer(weights: dict[str, Tensor], name: str) -> ShortLayer:
    parts = ("qkv", "out", "attention_norm", "up", "down", "mlp_norm")
    return ShortLayer(**{part: _pair(weights, f"{name}.{part}") for part in parts})


def _pair(weights: dict[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


def build(
    config: BertConfig, weights: dict[str, Tensor], backends: Sequence[AttentionBackend]
) -> Bert:
    """Registry entry."""
    (backend,) = backends
    return Bert(config, weights, backend)
