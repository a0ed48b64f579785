"""Gemma 3's text model as an embedder (EmbeddingGemma): norms before and behind each block.

    h = sqrt(D) word
    for each layer:  h = h + RMSNorm(attention(RMSNorm(h)))
                     h = h + RMSNorm(down(gelu_tanh(gate(n)) * up(n))), n = RMSNorm(h)
    after the last:  RMSNorm(h)

q and k are RMS-normalised per head, then rotated. Global and local layers differ in what a token
sees and in the base of the rotation. A norm multiplies by 1 + its stored weight. Source: Gemma 3
report, arXiv 2503.19786; EmbeddingGemma, arXiv 2509.20354.
Legend: T tokens, D hidden, N heads, K kv heads, H head dim, F mlp dim.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from hotbed.checkpoint.records import Gemma3Config
from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.attention import SelfAttention
from hotbed.rose.layers.linear import Linear
from hotbed.rose.layers.mlp import GatedMlp
from hotbed.rose.layers.norm import LinearThenRMSNorm, RMSNorm
from hotbed.rose.layers.rotary import Rotary, Rotation
from hotbed.rose.weights import Parameter, WeightMap, linear

_UNUSED = (r"lm_head\.weight",)


def attention_specs(config: Gemma3Config) -> tuple[AttentionSpec, ...]:
    """What global and local layers ask of their attention backends."""
    return tuple(
        AttentionSpec(
            num_heads=config.num_attention_heads,
            num_kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            causal=config.is_causal,
            window=window,
        )
        for window in (None, config.window)
    )


def weight_map(config: Gemma3Config) -> WeightMap:
    """Parameters by name and the stored tensors they come from."""
    d, f, h = config.hidden_size, config.intermediate_size, config.head_dim
    n, k = config.num_attention_heads, config.num_key_value_heads
    parameters = {
        "word": Parameter(("embed_tokens.weight",), (config.vocab_size, d)),
        "final_norm": Parameter(("norm.weight",), (d,)),
    }
    for i in range(config.num_hidden_layers):
        name = f"layers.{i}"
        attention, mlp = f"{name}.self_attn", f"{name}.mlp"
        qkv = tuple(f"{attention}.{part}_proj" for part in "qkv")
        gate_up = (f"{mlp}.gate_proj", f"{mlp}.up_proj")
        parameters |= linear(f"{name}.qkv", qkv, ((n + 2 * k) * h, d), bias=False)
        parameters |= linear(f"{name}.out", (f"{attention}.o_proj",), (d, n * h), bias=False)
        parameters |= linear(f"{name}.gate_up", gate_up, (2 * f, d), bias=False)
        parameters |= linear(f"{name}.down", (f"{mlp}.down_proj",), (d, f), bias=False)
        for norm, source, width in (
            ("q_norm", f"{attention}.q_norm", h),
            ("k_norm", f"{attention}.k_norm", h),
            ("attention_norm", f"{name}.input_layernorm", d),
            ("out_norm", f"{name}.post_attention_layernorm", d),
            ("mlp_norm", f"{name}.pre_feedforward_layernorm", d),
            ("down_norm", f"{name}.post_feedforward_layernorm", d),
        ):
            parameters[f"{name}.{norm}"] = Parameter((f"{source}.weight",), (width,))
    return WeightMap(parameters, _UNUSED)


class Gemma3Layer:
    """One layer."""

    def __init__(
        self,
        config: Gemma3Config,
        weights: dict[str, Tensor],
        name: str,
        spec: AttentionSpec,
        backend: AttentionBackend,
    ) -> None:
        def norm(part: str) -> RMSNorm:
            return RMSNorm(_plus_one(weights[f"{name}.{part}"]), eps=config.rms_norm_eps)

        def linear_of(part: str) -> Linear:
            return Linear(weights[f"{name}.{part}.weight"])

        self.attention = SelfAttention(
            qkv=linear_of("qkv"),
            out=LinearThenRMSNorm(linear_of("out"), norm("out_norm")),
            spec=spec,
            backend=backend,
            q_norm=norm("q_norm"),
            k_norm=norm("k_norm"),
        )
        self.attention_norm = norm("attention_norm")
        self.mlp_norm = norm("mlp_norm")
        down = LinearThenRMSNorm(linear_of("down"), norm("down_norm"))
        self.mlp = GatedMlp(linear_of("gate_up"), down, "gelu_tanh")

    def __call__(self, x_TD: Tensor, plan: object, rotary: Rotation) -> Tensor:
        x_TD = self.attention(
            self.attention_norm.for_linear(x_TD), residual=x_TD, plan=plan, rotary=rotary
        )
        return self.mlp(self.mlp_norm.for_linear(x_TD), residual=x_TD)


class Gemma3:
    """The stack; `forward` gives the states after the final norm."""

    def __init__(
        self,
        config: Gemma3Config,
        weights: dict[str, Tensor],
        backends: Sequence[AttentionBackend],
    ) -> None:
        self._kinds = list(zip(backends, attention_specs(config), strict=True))
        self._is_local = config.is_local
        self._word = weights["word"]
        self._scale = config.hidden_size**0.5
        self._rotaries = [
            Rotary(
                head_dim=config.head_dim,
                theta=theta,
                max_positions=config.max_position_embeddings,
                device=self._word.device,
                scaling=scaling,
            )
            for theta, scaling in (
                (config.global_theta, config.global_scaling),
                (config.local_theta, None),
            )
        ]
        self._layers = []
        for i, is_local in enumerate(config.is_local):
            backend, spec = self._kinds[is_local]
            self._layers.append(Gemma3Layer(config, weights, f"layers.{i}", spec, backend))
        self._final_norm = RMSNorm(_plus_one(weights["final_norm"]), eps=config.rms_norm_eps)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Packed tokens to states [T, D]."""
        plans = [backend.plan(batch, spec) for backend, spec in self._kinds]
        rotations = [rotary.at(batch) for rotary in self._rotaries]
        x_TD = F.embedding(batch.token_ids, self._word) * self._scale
        for layer, is_local in zip(self._layers, self._is_local, strict=True):
            x_TD = layer(x_TD, plans[is_local], rotations[is_local])
        return self._final_norm(x_TD)


def _plus_one(weight: Tensor) -> Tensor:
    """The factor of a norm; the sum is rounded once."""
    return (1 + weight.float()).to(weight.dtype)


def build(
    config: Gemma3Config, weights: dict[str, Tensor], backends: Sequence[AttentionBackend]
) -> Gemma3:
    """Registry entry."""
    return Gemma3(config, weights, backends)
