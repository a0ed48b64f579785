"""Qwen3 as an embedder: pre-norm decoder layers, causal or bidirectional; no KV cache, no LM head.

    for each layer:  h = h + attention(RMSNorm(h))
                     h = h + down(silu(gate(n)) * up(n)), n = RMSNorm(h)
    after the last:  RMSNorm(h)

q and k are RMS-normalised per head, then rotated. The bidirectional form (pplx-embed) differs in
the mask alone. Source: Qwen3 technical report, arXiv 2505.09388. Legend: T tokens, D hidden,
N heads, K kv heads, H head dim, F mlp dim.
"""

from __future__ import annotations

from typing import cast

import torch.nn.functional as F
from torch import Tensor

from hotbed.checkpoint.records import Qwen3Config
from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.attention import SelfAttention
from hotbed.rose.layers.linear import Linear
from hotbed.rose.layers.mlp import SwiGluMlp
from hotbed.rose.layers.norm import RMSNorm
from hotbed.rose.layers.rotary import Rotary, Rotation
from hotbed.rose.layers.small_decoder import SmallLayer, small_decoder
from hotbed.rose.weights import Parameter, WeightMap, linear

_UNUSED = (r"lm_head\.weight", r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq")


def attention_spec(config: Qwen3Config) -> AttentionSpec:
    """What the model asks of its attention backend."""
    return AttentionSpec(
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        causal=config.is_causal,
    )


def weight_map(config: Qwen3Config) -> WeightMap:
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
            ("mlp_norm", f"{name}.post_attention_layernorm", d),
        ):
            parameters[f"{name}.{norm}"] = Parameter((f"{source}.weight",), (width,))
    return WeightMap(parameters, _UNUSED)


class Qwen3Layer:
    """One decoder layer."""

    def __init__(
        self, config: Qwen3Config, weights: dict[str, Tensor], name: str, backend: AttentionBackend
    ) -> None:
        def norm(part: str) -> RMSNorm:
            return RMSNorm(weights[f"{name}.{part}"], eps=config.rms_norm_eps)

        def linear_of(part: str) -> Linear:
            return Linear(weights[f"{name}.{part}.weight"])

        self.attention = SelfAttention(
            qkv=linear_of("qkv"),
            out=linear_of("out"),
            spec=attention_spec(config),
            backend=backend,
            q_norm=norm("q_norm"),
            k_norm=norm("k_norm"),
        )
        self.attention_norm = norm("attention_norm")
        self.mlp_norm = norm("mlp_norm")
        self.mlp = SwiGluMlp(gate_up=linear_of("gate_up"), down=linear_of("down"))

    def __call__(self, x_TD: Tensor, plan: object, rotary: Rotation) -> Tensor:
        x_TD = self.attention(self.attention_norm(x_TD), residual=x_TD, plan=plan, rotary=rotary)
        return self.mlp(self.mlp_norm(x_TD), residual=x_TD)


class Qwen3:
    """The stack; `forward` gives the states after the final norm."""

    def __init__(
        self, config: Qwen3Config, weights: dict[str, Tensor], backend: AttentionBackend
    ) -> None:
        self._backend = backend
        self._spec = attention_spec(config)
        self._word = weights["word"]
        self._rotary = Rotary(
            head_dim=config.head_dim,
            theta=config.rope_theta,
            max_positions=config.max_position_embeddings,
            device=self._word.device,
        )
        self._layers = [
            Qwen3Layer(config, weights, f"layers.{i}", backend)
            for i in range(config.num_hidden_layers)
        ]
        self._final_norm = RMSNorm(weights["final_norm"], eps=config.rms_norm_eps)
        self._small = small_decoder(
            [_small_layer(weights, f"layers.{i}") for i in range(config.num_hidden_layers)],
            weights["final_norm"],
            self._spec,
            eps=config.rms_norm_eps,
        )

    def forward(self, batch: PackedBatch) -> Tensor:
        """Packed tokens to states [T, D]."""
        rotary = self._rotary.at(batch.positions)
        if self._small is not None and self._small.takes(batch):
            return self._final_norm(self._small(batch, self._word, rotary))
        plan = self._backend.plan(batch, self._spec)
        x_TD = F.embedding(batch.token_ids, self._word)
        for layer in self._layers:
            x_TD = layer(x_TD, plan, rotary)
        return self._final_norm(x_TD)


def _small_layer(weights: dict[str, Tensor], name: str) -> SmallLayer:
    linears = {part: weights[f"{name}.{part}.weight"] for part in ("qkv", "out", "gate_up", "down")}
    norms = {
        part: weights[f"{name}.{part}"]
        for part in ("attention_norm", "mlp_norm", "q_norm", "k_norm")
    }
    return SmallLayer(**linears, **norms)


def build(config: object, weights: dict[str, Tensor], backend: AttentionBackend) -> Qwen3:
    """Registry entry."""
    return Qwen3(cast(Qwen3Config, config), weights, backend)
