"""DeBERTa-v3: BERT's layers with disentangled attention, and no positions in the embedding.

    h = LayerNorm(word)
    for each layer:  h = LayerNorm(h + attention(h));  h = LayerNorm(h + W2 gelu(W1 h))

One table of distances for all layers, normed, goes through each layer's own projections of q and k.
Sources: He et al. 2020, arXiv 2006.03654; He et al. 2021, arXiv 2111.09543.
Legend: T tokens, D hidden, F mlp dim, N heads, H head dim, R rows of the table.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from hotbed.checkpoint.records import DebertaConfig
from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.disentangled import DisentangledAttention, Distances
from hotbed.rose.layers.fp8_linear import Activations, wide
from hotbed.rose.layers.norm import LayerNorm
from hotbed.rose.layers.post_norm import PostNormLayer
from hotbed.rose.weights import Parameter, WeightMap, layer_norm, linear

_UNUSED = (
    r"embeddings\.position_(ids|embeddings\.weight)",
    r"pooler\..*",
    r"(cls|lm_predictions|mask_predictions)\..*",
)


def attention_specs(config: DebertaConfig) -> tuple[AttentionSpec, ...]:
    """Registry entry: no backend takes distances, so the model brings its own attention."""
    return ()


def weight_map(config: DebertaConfig) -> WeightMap:
    """Parameters by name and the stored tensors they come from."""
    d, f = config.hidden_size, config.intermediate_size
    rows = 2 * config.position_buckets
    parameters = {
        "word": Parameter(("embeddings.word_embeddings.weight",), (config.vocab_size, d)),
        **layer_norm("embedding_norm", "embeddings.LayerNorm", d),
        "distance": Parameter(("encoder.rel_embeddings.weight",), (rows, d)),
        **layer_norm("distance_norm", "encoder.LayerNorm", d),
    }
    for i in range(config.num_hidden_layers):
        stored, made = f"encoder.layer.{i}", f"layers.{i}"
        qkv = tuple(f"{stored}.attention.self.{part}_proj" for part in ("query", "key", "value"))
        out = f"{stored}.attention.output"
        parameters |= linear(f"{made}.qkv", qkv, (3 * d, d), bias=True)
        parameters |= linear(f"{made}.out", (f"{out}.dense",), (d, d), bias=True)
        parameters |= layer_norm(f"{made}.attention_norm", f"{out}.LayerNorm", d)
        parameters |= linear(f"{made}.up", (f"{stored}.intermediate.dense",), (f, d), bias=True)
        parameters |= linear(f"{made}.down", (f"{stored}.output.dense",), (d, f), bias=True)
        parameters |= layer_norm(f"{made}.mlp_norm", f"{stored}.output.LayerNorm", d)
    return WeightMap(parameters, _UNUSED)


class Deberta:
    """The encoder; `forward` gives the last layer's states."""

    def __init__(self, config: DebertaConfig, weights: dict[str, Tensor]) -> None:
        self._word = weights["word"]
        self._norm = LayerNorm(
            weights["embedding_norm.weight"],
            weights["embedding_norm.bias"],
            eps=config.layer_norm_eps,
        )
        table = weights["distance"].float()
        table_RD = F.layer_norm(
            table,
            table.shape[1:],
            weights["distance_norm.weight"].float(),
            weights["distance_norm.bias"].float(),
            config.layer_norm_eps,
        )
        self._distances = Distances(
            config.position_buckets,
            max_positions=config.longest_sequence,
            device=self._word.device,
        )
        heads = config.num_attention_heads
        spec = AttentionSpec(heads, heads, config.head_dim, causal=False)
        self._layers = [
            PostNormLayer(
                weights,
                name,
                spec=spec,
                backend=_attention(weights, name, table_RD, spec),
                eps=config.layer_norm_eps,
            )
            for name in (f"layers.{i}" for i in range(config.num_hidden_layers))
        ]

    def forward(self, batch: PackedBatch) -> Tensor:
        """Packed tokens to states [T, D]."""
        plan = self._distances.plan(batch)
        x_TD: Activations = self._norm(F.embedding(batch.token_ids, self._word))
        for layer in self._layers:
            x_TD = layer(x_TD, plan)
        return wide(x_TD)


def _attention(
    weights: dict[str, Tensor], name: str, table_RD: Tensor, spec: AttentionSpec
) -> DisentangledAttention:
    """A layer's, with the normed table of distances, fp32, through its projections of q and k."""
    weight, bias = weights[f"{name}.qkv.weight"], weights[f"{name}.qkv.bias"]
    rows, heads = 2 * table_RD.shape[1], spec.num_heads
    both = F.linear(table_RD, weight[:rows].float(), bias[:rows].float()).to(weight.dtype)
    queries, keys = both.unflatten(1, (2, heads, spec.head_dim)).unbind(1)
    return DisentangledAttention(keys, queries)


def build(
    config: DebertaConfig, weights: dict[str, Tensor], backends: Sequence[AttentionBackend]
) -> Deberta:
    """Registry entry."""
    assert not backends, "the model asks for none"
    return Deberta(config, weights)
