"""MPNet: BERT without segments, with a bias for the distance of two tokens in every attention.

    h = LayerNorm(word + position)
    for each layer:  h = LayerNorm(h + attention(h));  h = LayerNorm(h + W2 gelu(W1 h))

The bias is one table for all layers. Source: Song et al. 2020, arXiv 2004.09297.
Legend: T tokens, D hidden, F mlp dim, N heads.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from hotbed.checkpoint.records import MpnetConfig
from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.embedding import NormedEmbedding
from hotbed.rose.layers.fp8_linear import Activations, wide
from hotbed.rose.layers.post_norm import PostNormLayer
from hotbed.rose.layers.relative_bias import RelativeBiasAttention, learned
from hotbed.rose.weights import Parameter, WeightMap, layer_norm, linear

_UNUSED = (r"embeddings\.position_ids", r"pooler\..*", r"lm_head\..*")


def attention_specs(config: MpnetConfig) -> tuple[AttentionSpec, ...]:
    """Registry entry: no backend takes a bias, so the model brings its own attention."""
    return ()


def weight_map(config: MpnetConfig) -> WeightMap:
    """Parameters by name and the stored tensors they come from."""
    d, f, n = config.hidden_size, config.intermediate_size, config.num_attention_heads
    parameters = {
        "word": Parameter(("embeddings.word_embeddings.weight",), (config.vocab_size, d)),
        "position": Parameter(
            ("embeddings.position_embeddings.weight",), (config.max_position_embeddings, d)
        ),
        **layer_norm("embedding_norm", "embeddings.LayerNorm", d),
        "distance": Parameter(
            ("encoder.relative_attention_bias.weight",), (config.relative_attention_num_buckets, n)
        ),
    }
    for i in range(config.num_hidden_layers):
        stored, made = f"encoder.layer.{i}", f"layers.{i}"
        qkv = tuple(f"{stored}.attention.attn.{part}" for part in "qkv")
        parameters |= linear(f"{made}.qkv", qkv, (3 * d, d), bias=True)
        parameters |= linear(f"{made}.out", (f"{stored}.attention.attn.o",), (d, d), bias=True)
        parameters |= layer_norm(f"{made}.attention_norm", f"{stored}.attention.LayerNorm", d)
        parameters |= linear(f"{made}.up", (f"{stored}.intermediate.dense",), (f, d), bias=True)
        parameters |= linear(f"{made}.down", (f"{stored}.output.dense",), (d, f), bias=True)
        parameters |= layer_norm(f"{made}.mlp_norm", f"{stored}.output.LayerNorm", d)
    return WeightMap(parameters, _UNUSED)


class Mpnet:
    """The encoder; `forward` gives the last layer's states."""

    def __init__(self, config: MpnetConfig, weights: dict[str, Tensor]) -> None:
        self._embedding = NormedEmbedding(
            weights["word"],
            weights["position"][config.position_offset :],
            norm_weight=weights["embedding_norm.weight"],
            norm_bias=weights["embedding_norm.bias"],
            eps=config.layer_norm_eps,
        )
        self._attention = RelativeBiasAttention(
            learned(weights["distance"], config.longest_sequence),
            scale=float(config.head_dim**-0.5),
        )
        heads = config.num_attention_heads
        spec = AttentionSpec(heads, heads, config.head_dim, causal=False)
        self._layers = [
            PostNormLayer(
                weights,
                f"layers.{i}",
                spec=spec,
                backend=self._attention,
                eps=config.layer_norm_eps,
            )
            for i in range(config.num_hidden_layers)
        ]

    def forward(self, batch: PackedBatch) -> Tensor:
        """Packed tokens to states [T, D]."""
        plan = self._attention.plan(batch)
        x_TD: Activations = self._embedding(batch.token_ids, batch.positions)
        for layer in self._layers:
            x_TD = layer(x_TD, plan)
        return wide(x_TD)


def build(
    config: MpnetConfig, weights: dict[str, Tensor], backends: Sequence[AttentionBackend]
) -> Mpnet:
    """Registry entry."""
    assert not backends, "the model asks for none"
    return Mpnet(config, weights)
