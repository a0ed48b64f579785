"""ModernBERT: a pre-norm encoder with rotary positions; most layers see a window only.

    h = LayerNorm(word)
    for each layer:  h = h + attention(LayerNorm(h))    the first layer attends to h itself
                     h = h + down(gelu(gate(n)) * up(n)), n = LayerNorm(h)
    after the last:  LayerNorm(h)

Global and local layers differ in what a token sees and in the base of the rotation. No biases
anywhere. Source: Warner et al. 2024, arXiv 2412.13663. Legend: T tokens, D hidden, F mlp dim.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from hotbed.checkpoint.records import ModernBertConfig
from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.attention import SelfAttention
from hotbed.rose.layers.linear import Linear
from hotbed.rose.layers.mlp import GatedMlp
from hotbed.rose.layers.norm import LayerNorm
from hotbed.rose.layers.rotary import Rotary, Rotation
from hotbed.rose.weights import Parameter, WeightMap, linear

_UNUSED = (r"head\..*", r"decoder\..*")


def attention_specs(config: ModernBertConfig) -> tuple[AttentionSpec, ...]:
    """What global and local layers ask of their attention backends."""
    heads = config.num_attention_heads
    return tuple(
        AttentionSpec(heads, heads, config.head_dim, causal=False, window=window)
        for window in (None, config.window)
    )


def weight_map(config: ModernBertConfig) -> WeightMap:
    """Parameters by name and the stored tensors they come from."""
    d, f = config.hidden_size, config.intermediate_size
    parameters = {
        "word": Parameter(("embeddings.tok_embeddings.weight",), (config.vocab_size, d)),
        "embedding_norm": Parameter(("embeddings.norm.weight",), (d,)),
        "final_norm": Parameter(("final_norm.weight",), (d,)),
    }
    for i in range(config.num_hidden_layers):
        name = f"layers.{i}"
        parameters |= linear(f"{name}.qkv", (f"{name}.attn.Wqkv",), (3 * d, d), bias=False)
        parameters |= linear(f"{name}.out", (f"{name}.attn.Wo",), (d, d), bias=False)
        # The half that goes through the activation is stored first.
        parameters |= linear(f"{name}.gate_up", (f"{name}.mlp.Wi",), (2 * f, d), bias=False)
        parameters |= linear(f"{name}.down", (f"{name}.mlp.Wo",), (d, f), bias=False)
        parameters[f"{name}.mlp_norm"] = Parameter((f"{name}.mlp_norm.weight",), (d,))
        if i > 0:
            parameters[f"{name}.attention_norm"] = Parameter((f"{name}.attn_norm.weight",), (d,))
    return WeightMap(parameters, _UNUSED)


class ModernBertLayer:
    """One encoder layer."""

    def __init__(
        self,
        config: ModernBertConfig,
        weights: dict[str, Tensor],
        name: str,
        spec: AttentionSpec,
        backend: AttentionBackend,
    ) -> None:
        def linear_of(part: str) -> Linear:
            return Linear(weights[f"{name}.{part}.weight"])

        self.attention = SelfAttention(
            qkv=linear_of("qkv"), out=linear_of("out"), spec=spec, backend=backend
        )
        norm_weight = weights.get(f"{name}.attention_norm")
        self.attention_norm = (
            None if norm_weight is None else LayerNorm(norm_weight, None, eps=config.norm_eps)
        )
        self.mlp_norm = LayerNorm(weights[f"{name}.mlp_norm"], None, eps=config.norm_eps)
        self.mlp = GatedMlp(linear_of("gate_up"), linear_of("down"), "gelu")

    def __call__(self, x_TD: Tensor, plan: object, rotary: Rotation) -> Tensor:
        normed = x_TD if self.attention_norm is None else self.attention_norm(x_TD)
        x_TD = self.attention(normed, residual=x_TD, plan=plan, rotary=rotary)
        return self.mlp(self.mlp_norm(x_TD), residual=x_TD)


class ModernBert:
    """The encoder; `forward` gives the states after the final norm."""

    def __init__(
        self,
        config: ModernBertConfig,
        weights: dict[str, Tensor],
        backends: Sequence[AttentionBackend],
    ) -> None:
        self._kinds = list(zip(backends, attention_specs(config), strict=True))
        self._is_local = config.is_local
        self._word = weights["word"]
        self._embedding_norm = LayerNorm(weights["embedding_norm"], None, eps=config.norm_eps)
        self._final_norm = LayerNorm(weights["final_norm"], None, eps=config.norm_eps)
        self._rotaries = [
            Rotary(
                head_dim=config.head_dim,
                theta=theta,
                max_positions=config.max_position_embeddings,
                device=self._word.device,
            )
            for theta in (config.global_theta, config.local_theta)
        ]
        self._layers = []
        for i, is_local in enumerate(config.is_local):
            backend, spec = self._kinds[is_local]
            self._layers.append(ModernBertLayer(config, weights, f"layers.{i}", spec, backend))

    def forward(self, batch: PackedBatch) -> Tensor:
        """Packed tokens to states [T, D]."""
        plans = [backend.plan(batch, spec) for backend, spec in self._kinds]
        rotations = [rotary.at(batch) for rotary in self._rotaries]
        x_TD = self._embedding_norm(F.embedding(batch.token_ids, self._word))
        for layer, is_local in zip(self._layers, self._is_local, strict=True):
            x_TD = layer(x_TD, plans[is_local], rotations[is_local])
        return self._final_norm(x_TD)


def build(
    config: ModernBertConfig, weights: dict[str, Tensor], backends: Sequence[AttentionBackend]
) -> ModernBert:
    """Registry entry."""
    return ModernBert(config, weights, backends)
