"""Jina's BERT (jina-embeddings-v2): no positions but ALiBi, and a gated MLP.

    h = LayerNorm(word + segment 0)
    for each layer:  h = LayerNorm(h + attention(h))
                     h = LayerNorm(h + down(gelu(gate(h)) * up(h)))

ALiBi takes a slope times the distance off every score, a slope a head, to both sides alike.
Sources: Günther et al. 2023, arXiv 2310.19923; Press et al. 2022, arXiv 2108.12409.
Legend: T tokens, D hidden, F mlp dim, N heads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from hotbed.checkpoint.records import JinaBertConfig
from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.attention import SelfAttention
from hotbed.rose.layers.fp8_linear import Activations, wide
from hotbed.rose.layers.linear import Linear
from hotbed.rose.layers.mlp import GatedMlp
from hotbed.rose.layers.norm import LayerNorm, LinearThenNorm
from hotbed.rose.layers.relative_bias import RelativeBiasAttention, alibi
from hotbed.rose.weights import Parameter, WeightMap, layer_norm, linear

_UNUSED = (r"embeddings\.position_ids", r"pooler\..*", r"cls\..*")


def attention_specs(config: JinaBertConfig) -> tuple[AttentionSpec, ...]:
    """Registry entry: no backend takes a bias, so the model brings its own attention."""
    return ()


def weight_map(config: JinaBertConfig) -> WeightMap:
    """Parameters by name and the stored tensors they come from."""
    d, f = config.hidden_size, config.intermediate_size
    segment = "embeddings.token_type_embeddings.weight"
    parameters = {
        "word": Parameter(("embeddings.word_embeddings.weight",), (config.vocab_size, d)),
        "segment": Parameter((segment,), (config.type_vocab_size, d)),
        **layer_norm("embedding_norm", "embeddings.LayerNorm", d),
    }
    for i in range(config.num_hidden_layers):
        stored, made = f"encoder.layer.{i}", f"layers.{i}"
        qkv = tuple(f"{stored}.attention.self.{part}" for part in ("query", "key", "value"))
        out = f"{stored}.attention.output"
        gate_up = (f"{stored}.mlp.gated_layers",)  # gate first
        parameters |= linear(f"{made}.qkv", qkv, (3 * d, d), bias=True)
        parameters |= linear(f"{made}.out", (f"{out}.dense",), (d, d), bias=True)
        parameters |= layer_norm(f"{made}.attention_norm", f"{out}.LayerNorm", d)
        parameters |= linear(f"{made}.gate_up", gate_up, (2 * f, d), bias=False)
        parameters |= linear(f"{made}.down", (f"{stored}.mlp.wo",), (d, f), bias=True)
        parameters |= layer_norm(f"{made}.mlp_norm", f"{stored}.mlp.layernorm", d)
    return WeightMap(parameters, _UNUSED)


class JinaBertLayer:
    """One encoder layer."""

    def __init__(
        self,
        config: JinaBertConfig,
        weights: dict[str, Tensor],
        name: str,
        attention: RelativeBiasAttention,
    ) -> None:
        def then_norm(part: str, norm: str) -> LinearThenNorm:
            eps = config.layer_norm_eps
            return LinearThenNorm.of(weights, f"{name}.{part}", f"{name}.{norm}", eps=eps)

        heads = config.num_attention_heads
        self.attention = SelfAttention(
            qkv=Linear(weights[f"{name}.qkv.weight"], weights[f"{name}.qkv.bias"]),
            out=then_norm("out", "attention_norm"),
            spec=AttentionSpec(heads, heads, config.head_dim, causal=False),
            backend=attention,
        )
        gate_up = Linear(weights[f"{name}.gate_up.weight"])
        self.mlp = GatedMlp(gate_up, then_norm("down", "mlp_norm"), "gelu")

    def __call__(self, x_TD: Activations, plan: object) -> Activations:
        x_TD = self.attention(x_TD, residual=x_TD, plan=plan)
        return self.mlp(x_TD, residual=x_TD)


class JinaBert:
    """The encoder; `forward` gives the last layer's states."""

    def __init__(self, config: JinaBertConfig, weights: dict[str, Tensor]) -> None:
        self._word = weights["word"]
        self._segment = weights["segment"][0]  # every text is a first one
        self._norm = LayerNorm(
            weights["embedding_norm.weight"],
            weights["embedding_norm.bias"],
            eps=config.layer_norm_eps,
        )
        self._attention = RelativeBiasAttention(
            alibi(config.num_attention_heads, config.longest_sequence, like=self._word),
            scale=float(config.head_dim**-0.5),
        )
        self._layers = [
            JinaBertLayer(config, weights, f"layers.{i}", self._attention)
            for i in range(config.num_hidden_layers)
        ]

    def forward(self, batch: PackedBatch) -> Tensor:
        """Packed tokens to states [T, D]."""
        plan = self._attention.plan(batch)
        x_TD: Activations = self._norm(F.embedding(batch.token_ids, self._word) + self._segment)
        for layer in self._layers:
            x_TD = layer(x_TD, plan)
        return wide(x_TD)


def build(
    config: JinaBertConfig, weights: dict[str, Tensor], backends: Sequence[AttentionBackend]
) -> JinaBert:
    """Registry entry."""
    assert not backends, "the model asks for none"
    return JinaBert(config, weights)
