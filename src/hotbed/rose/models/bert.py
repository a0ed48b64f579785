"""BERT: a bidirectional encoder with learned positions and post-layer norms.

    h = LayerNorm(word + position + segment)
    for each layer:  h = LayerNorm(h + attention(h));  h = LayerNorm(h + W2 gelu(W1 h))

Source: Devlin et al. 2018, arXiv 1810.04805. Legend: T tokens, D hidden, F mlp dim.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from hotbed.checkpoint.records import BertConfig
from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.attention import SelfAttention
from hotbed.rose.layers.embedding import NormedEmbedding
from hotbed.rose.layers.linear import Activation, Linear
from hotbed.rose.layers.mlp import Mlp
from hotbed.rose.layers.norm import LinearThenNorm
from hotbed.rose.layers.short_encoder import ShortLayer, ShortSettings, short_encoder
from hotbed.rose.layers.small_encoder import small_encoder
from hotbed.rose.weights import Parameter, WeightMap, linear

_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
_UNUSED = (
    r"embeddings\.position_ids",
    r"embeddings\.token_type_ids",
    r"pooler\..*",
    r"cls\..*",
)


def attention_spec(config: BertConfig) -> AttentionSpec:
    """What the model asks of its attention backend."""
    heads = config.num_attention_heads
    return AttentionSpec(
        num_heads=heads, num_kv_heads=heads, head_dim=config.head_dim, causal=False
    )


def pair_offset(config: BertConfig) -> int:
    """Rows of the position table for one segment; 0 if the model knows one segment only."""
    return config.max_position_embeddings if config.type_vocab_size > 1 else 0


def weight_map(config: BertConfig) -> WeightMap:
    """Parameters by name and the stored tensors they come from."""
    d, f = config.hidden_size, config.intermediate_size
    parameters = {
        "word": Parameter(("embeddings.word_embeddings.weight",), (config.vocab_size, d)),
        "position": Parameter(
            ("embeddings.position_embeddings.weight",), (config.max_position_embeddings, d)
        ),
        "segment": Parameter(
            ("embeddings.token_type_embeddings.weight",), (config.type_vocab_size, d)
        ),
        **_norm("embedding_norm", "embeddings.LayerNorm", d),
    }
    for i in range(config.num_hidden_layers):
        stored, made = f"encoder.layer.{i}", f"layers.{i}"
        qkv = tuple(f"{stored}.attention.self.{part}" for part in ("query", "key", "value"))
        parameters |= linear(f"{made}.qkv", qkv, (3 * d, d), bias=True)
        parameters |= linear(
            f"{made}.out", (f"{stored}.attention.output.dense",), (d, d), bias=True
        )
        parameters |= _norm(f"{made}.attention_norm", f"{stored}.attention.output.LayerNorm", d)
        parameters |= linear(f"{made}.up", (f"{stored}.intermediate.dense",), (f, d), bias=True)
        parameters |= linear(f"{made}.down", (f"{stored}.output.dense",), (d, f), bias=True)
        parameters |= _norm(f"{made}.mlp_norm", f"{stored}.output.LayerNorm", d)
    return WeightMap(parameters, _UNUSED)


def _norm(name: str, source: str, d: int) -> dict[str, Parameter]:
    return {f"{name}.{part}": Parameter((f"{source}.{part}",), (d,)) for part in ("weight", "bias")}


class BertLayer:
    """One encoder layer."""

    def __init__(
        self, config: BertConfig, weights: dict[str, Tensor], name: str, backend: AttentionBackend
    ) -> None:
        def linear_of(part: str, activation: Activation = "none") -> Linear:
            return Linear(*_pair(weights, f"{name}.{part}"), activation=activation)

        def then_norm(part: str, norm: str) -> LinearThenNorm:
            weight, bias = _pair(weights, f"{name}.{norm}")
            return LinearThenNorm(
                *_pair(weights, f"{name}.{part}"),
                norm_weight=weight,
                norm_bias=bias,
                eps=config.layer_norm_eps,
            )

        self.attention = SelfAttention(
            qkv=linear_of("qkv"),
            out=then_norm("out", "attention_norm"),
            spec=attention_spec(config),
            backend=backend,
        )
        self.mlp = Mlp(
            up=linear_of("up", _ACTIVATIONS[config.hidden_act]), down=then_norm("down", "mlp_norm")
        )

    def __call__(self, x_TD: Tensor, plan: object) -> Tensor:
        x_TD = self.attention(x_TD, residual=x_TD, plan=plan)
        return self.mlp(x_TD, residual=x_TD)


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
        # The segment's row joins the positions': a table for first texts, then one for second.
        self._position = torch.cat([weights["position"] + row for row in weights["segment"][:2]])
        self._embedding = NormedEmbedding(
            self._word,
            self._position,
            norm_weight=norm_weight,
            norm_bias=norm_bias,
            eps=config.layer_norm_eps,
        )
        self._layers = [
            BertLayer(config, weights, f"layers.{i}", backend)
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
        for layer in self._layers:
            x_TD = layer(x_TD, plan)
        return x_TD


def _short_layer(weights: dict[str, Tensor], name: str) -> ShortLayer:
    parts = ("qkv", "out", "attention_norm", "up", "down", "mlp_norm")
    return ShortLayer(**{part: _pair(weights, f"{name}.{part}") for part in parts})


def _pair(weights: dict[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


def build(config: object, weights: dict[str, Tensor], backend: AttentionBackend) -> Bert:
    """Registry entry."""
    return Bert(cast(BertConfig, config), weights, backend)
