"""BERT: a bidirectional encoder with learned positions and post-layer norms.

    h = LayerNorm(word + position + segment 0)
    for each layer:  h = LayerNorm(h + attention(h));  h = LayerNorm(h + W2 gelu(W1 h))

Source: Devlin et al. 2018, arXiv 1810.04805. Legend: T tokens, D hidden, F mlp dim.
"""

from __future__ import annotations

from typing import cast

import torch.nn.functional as F
from torch import Tensor

from hotbed.checkpoint.records import BertConfig
from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.attention import SelfAttention
from hotbed.rose.layers.linear import Activation, Linear
from hotbed.rose.layers.norm import LayerNorm
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
            part = f"{name}.{part}"
            return Linear(weights[f"{part}.weight"], weights[f"{part}.bias"], activation=activation)

        self.attention = SelfAttention(
            qkv=linear_of("qkv"),
            out=linear_of("out"),
            spec=attention_spec(config),
            backend=backend,
        )
        self.attention_norm = _layer_norm(config, weights, f"{name}.attention_norm")
        self.up = linear_of("up", _ACTIVATIONS[config.hidden_act])
        self.down = linear_of("down")
        self.mlp_norm = _layer_norm(config, weights, f"{name}.mlp_norm")

    def __call__(self, x_TD: Tensor, plan: object) -> Tensor:
        x_TD = self.attention_norm(self.attention(x_TD, residual=x_TD, plan=plan))
        return self.mlp_norm(self.down(self.up(x_TD), x_TD))


class Bert:
    """The encoder; `forward` gives the last layer's states."""

    def __init__(
        self, config: BertConfig, weights: dict[str, Tensor], backend: AttentionBackend
    ) -> None:
        self._backend = backend
        self._spec = attention_spec(config)
        self._word = weights["word"]
        # One text a sequence, so every token is in segment 0: its row joins the positions'.
        self._position = weights["position"] + weights["segment"][0]
        self._embedding_norm = _layer_norm(config, weights, "embedding_norm")
        self._layers = [
            BertLayer(config, weights, f"layers.{i}", backend)
            for i in range(config.num_hidden_layers)
        ]

    def forward(self, batch: PackedBatch) -> Tensor:
        """Packed tokens to states [T, D]."""
        plan = self._backend.plan(batch, self._spec)
        embedded = F.embedding(batch.token_ids, self._word)
        embedded += F.embedding(batch.positions, self._position)
        x_TD = self._embedding_norm(embedded)
        for layer in self._layers:
            x_TD = layer(x_TD, plan)
        return x_TD


def _layer_norm(config: BertConfig, weights: dict[str, Tensor], name: str) -> LayerNorm:
    return LayerNorm(weights[f"{name}.weight"], weights[f"{name}.bias"], eps=config.layer_norm_eps)


def build(config: object, weights: dict[str, Tensor], backend: AttentionBackend) -> Bert:
    """Registry entry."""
    return Bert(cast(BertConfig, config), weights, backend)
