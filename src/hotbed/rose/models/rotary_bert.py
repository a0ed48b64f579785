"""BERT with rotary positions and a gated MLP: Nomic's (SwiGLU) and GTE's (GeGLU, with biases).

    h = LayerNorm(word + segment 0)    GTE's base model in English has no segments
    for each layer:  h = LayerNorm(h + attention(h))
                     h = LayerNorm(h + down(act(gate(h)) * up(h)))

q and k are rotated. The two differ in the gate's activation, in biases and in the tensors' names.
Sources: Nussbaum et al. 2024, arXiv 2402.01613; Zhang et al. 2024, arXiv 2407.19669.
Legend: T tokens, D hidden, F mlp dim.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.checkpoint.records import RotaryBertConfig
from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.attention import SelfAttention
from hotbed.rose.layers.fp8_linear import Activations, wide
from hotbed.rose.layers.linear import Linear
from hotbed.rose.layers.mlp import GatedMlp
from hotbed.rose.layers.norm import LayerNorm, LinearThenNorm
from hotbed.rose.layers.rotary import Rotary, Rotation
from hotbed.rose.weights import Parameter, WeightMap, layer_norm, linear

# By part of a layer, what each kind of files calls it. Gate before up.
_NAMES = {
    "nomic": {
        "layer": "encoder.layers.{}",
        "embedding_norm": "emb_ln",
        "qkv": ("attn.Wqkv",),
        "out": ("attn.out_proj",),
        "attention_norm": "norm1",
        "gate_up": ("mlp.fc12", "mlp.fc11"),
        "down": ("mlp.fc2",),
        "mlp_norm": "norm2",
    },
    "gte": {
        "layer": "encoder.layer.{}",
        "embedding_norm": "embeddings.LayerNorm",
        "qkv": ("attention.qkv_proj",),
        "out": ("attention.o_proj",),
        "attention_norm": "attn_ln",
        "gate_up": ("mlp.up_gate_proj",),  # up before gate: turned round when the layer is built
        "down": ("mlp.down_proj",),
        "mlp_norm": "mlp_ln",
    },
}
_UNUSED = (r"pooler\..*", r"classifier\..*", r"cls\..*", r"lm_head\..*")


def attention_specs(config: RotaryBertConfig) -> tuple[AttentionSpec, ...]:
    """Registry entry: all layers are of one kind."""
    heads = config.num_attention_heads
    return (AttentionSpec(heads, heads, config.head_dim, causal=False),)


def weight_map(config: RotaryBertConfig) -> WeightMap:
    """Parameters by name and the stored tensors they come from."""
    d, f = config.hidden_size, config.intermediate_size
    names = _NAMES[config.naming]
    parameters = {
        "word": Parameter(("embeddings.word_embeddings.weight",), (config.vocab_size, d)),
        **layer_norm("embedding_norm", str(names["embedding_norm"]), d),
    }
    if config.type_vocab_size:
        source = "embeddings.token_type_embeddings.weight"
        parameters["segment"] = Parameter((source,), (config.type_vocab_size, d))
    bias = config.naming == "gte"
    shapes = {"qkv": (3 * d, d), "out": (d, d), "gate_up": (2 * f, d), "down": (d, f)}
    for i in range(config.num_hidden_layers):
        stored = str(names["layer"]).format(i)
        for part, shape in shapes.items():
            sources = tuple(f"{stored}.{source}" for source in names[part])
            has_bias = bias and part != "gate_up"
            parameters |= linear(f"layers.{i}.{part}", sources, shape, bias=has_bias)
        for part in ("attention_norm", "mlp_norm"):
            parameters |= layer_norm(f"layers.{i}.{part}", f"{stored}.{names[part]}", d)
    return WeightMap(parameters, _UNUSED)


class RotaryBertLayer:
    """One encoder layer."""

    def __init__(
        self,
        config: RotaryBertConfig,
        weights: dict[str, Tensor],
        name: str,
        backend: AttentionBackend,
    ) -> None:
        def then_norm(part: str, norm: str) -> LinearThenNorm:
            eps = config.layer_norm_eps
            return LinearThenNorm.of(weights, f"{name}.{part}", f"{name}.{norm}", eps=eps)

        self.attention = SelfAttention(
            qkv=Linear(weights[f"{name}.qkv.weight"], weights.get(f"{name}.qkv.bias")),
            out=then_norm("out", "attention_norm"),
            spec=attention_specs(config)[0],
            backend=backend,
        )
        gate_up = weights[f"{name}.gate_up.weight"]
        if config.naming == "gte":
            gate_up = torch.cat(gate_up.chunk(2)[::-1])
        self.mlp = GatedMlp(Linear(gate_up), then_norm("down", "mlp_norm"), config.gate)

    def __call__(self, x_TD: Activations, plan: object, rotary: Rotation) -> Activations:
        x_TD = self.attention(x_TD, residual=x_TD, plan=plan, rotary=rotary)
        return self.mlp(x_TD, residual=x_TD)


class RotaryBert:
    """The encoder; `forward` gives the last layer's states."""

    def __init__(
        self, config: RotaryBertConfig, weights: dict[str, Tensor], backend: AttentionBackend
    ) -> None:
        self._backend = backend
        (self._spec,) = attention_specs(config)
        self._word = weights["word"]
        # Every token is in segment 0: models that tell second texts apart are refused at load.
        self._segment = weights["segment"][0] if config.type_vocab_size else None
        self._norm = LayerNorm(
            weights["embedding_norm.weight"],
            weights["embedding_norm.bias"],
            eps=config.layer_norm_eps,
        )
        self._rotary = Rotary(
            head_dim=config.head_dim,
            theta=config.rope_theta,
            max_positions=config.max_position_embeddings,
            device=self._word.device,
            scaling=config.rope_scaling,
        )
        self._layers = [
            RotaryBertLayer(config, weights, f"layers.{i}", backend)
            for i in range(config.num_hidden_layers)
        ]

    def forward(self, batch: PackedBatch) -> Tensor:
        """Packed tokens to states [T, D]."""
        plan = self._backend.plan(batch, self._spec)
        rotary = self._rotary.at(batch)
        embedded = F.embedding(batch.token_ids, self._word)
        if self._segment is not None:
            embedded = embedded + self._segment
        x_TD: Activations = self._norm(embedded)
        for layer in self._layers:
            x_TD = layer(x_TD, plan, rotary)
        return wide(x_TD)


def build(
    config: RotaryBertConfig, weights: dict[str, Tensor], backends: Sequence[AttentionBackend]
) -> RotaryBert:
    """Registry entry."""
    (backend,) = backends
    return RotaryBert(config, weights, backend)
