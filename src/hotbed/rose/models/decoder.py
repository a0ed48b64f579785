"""Decoders as embedders: pre-norm layers, causal or bidirectional; no KV cache, no LM head.

    for each layer:  h = h + attention(RMSNorm(h))
                     h = h + down(silu(gate(n)) * up(n)), n = RMSNorm(h)
    after the last:  RMSNorm(h)

q and k are rotated. What differs: Qwen3 normalises them per head before that, Qwen2 has biases on
q, k and v, Mistral may see a window only, Llama none of it; the bidirectional forms (pplx-embed,
gte-Qwen2) differ in the mask alone. Sources: Llama, arXiv 2302.13971; Mistral, arXiv 2310.06825;
Qwen2, arXiv 2407.10671; Qwen3, arXiv 2505.09388.
Legend: T tokens, D hidden, N heads, K kv heads, H head dim, F mlp dim.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from hotbed.checkpoint.records import DecoderConfig
from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.attention import SelfAttention
from hotbed.rose.layers.linear import Linear
from hotbed.rose.layers.mlp import GatedMlp
from hotbed.rose.layers.norm import RMSNorm
from hotbed.rose.layers.rotary import Rotary, Rotation
from hotbed.rose.layers.small_decoder import SmallLayer, small_decoder
from hotbed.rose.weights import Parameter, WeightMap, linear

_UNUSED = (r"lm_head\.weight", r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq")


def attention_spec(config: DecoderConfig) -> AttentionSpec:
    """What the model asks of its attention backend."""
    return AttentionSpec(
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        causal=config.is_causal,
        window=config.window,
    )


def attention_specs(config: DecoderConfig) -> tuple[AttentionSpec, ...]:
    """Registry entry: all layers are of one kind."""
    return (attention_spec(config),)


def weight_map(config: DecoderConfig) -> WeightMap:
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
        parameters |= linear(f"{name}.qkv", qkv, ((n + 2 * k) * h, d), bias=config.qkv_bias)
        parameters |= linear(f"{name}.out", (f"{attention}.o_proj",), (d, n * h), bias=False)
        parameters |= linear(f"{name}.gate_up", gate_up, (2 * f, d), bias=False)
        parameters |= linear(f"{name}.down", (f"{mlp}.down_proj",), (d, f), bias=False)
        norms = [
            ("attention_norm", f"{name}.input_layernorm", d),
            ("mlp_norm", f"{name}.post_attention_layernorm", d),
        ]
        if config.qk_norm:
            norms += [(part, f"{attention}.{part}", h) for part in ("q_norm", "k_norm")]
        for norm, source, width in norms:
            parameters[f"{name}.{norm}"] = Parameter((f"{source}.weight",), (width,))
    return WeightMap(parameters, _UNUSED)


class DecoderLayer:
    """One decoder layer."""

    def __init__(
        self,
        config: DecoderConfig,
        weights: dict[str, Tensor],
        name: str,
        backend: AttentionBackend,
    ) -> None:
        def norm(part: str) -> RMSNorm:
            return RMSNorm(weights[f"{name}.{part}"], eps=config.rms_norm_eps)

        def linear_of(part: str) -> Linear:
            return Linear(weights[f"{name}.{part}.weight"], weights.get(f"{name}.{part}.bias"))

        self.attention = SelfAttention(
            qkv=linear_of("qkv"),
            out=linear_of("out"),
            spec=attention_spec(config),
            backend=backend,
            q_norm=norm("q_norm") if config.qk_norm else None,
            k_norm=norm("k_norm") if config.qk_norm else None,
        )
        self.attention_norm = norm("attention_norm")
        self.mlp_norm = norm("mlp_norm")
        self.mlp = GatedMlp(gate_up=linear_of("gate_up"), down=linear_of("down"))

    def __call__(self, x_TD: Tensor, plan: object, rotary: Rotation) -> Tensor:
        x_TD = self.attention(
            self.attention_norm.for_linear(x_TD), residual=x_TD, plan=plan, rotary=rotary
        )
        return self.mlp(self.mlp_norm.for_linear(x_TD), residual=x_TD)


class Decoder:
    """The stack; `forward` gives the states after the final norm."""

    def __init__(
        self, config: DecoderConfig, weights: dict[str, Tensor], backend: AttentionBackend
    ) -> None:
        self._backend = backend
        self._spec = attention_spec(config)
        self._word = weights["word"]
        self._rotary = Rotary(
            head_dim=config.head_dim,
            theta=config.rope_theta,
            max_positions=config.max_position_embeddings,
            device=self._word.device,
            scaling=config.rope_scaling,
        )
        self._layers = [
            DecoderLayer(config, weights, f"layers.{i}", backend)
            for i in range(config.num_hidden_layers)
        ]
        self._final_norm = RMSNorm(weights["final_norm"], eps=config.rms_norm_eps)
        self._small = None
        if config.qk_norm and not config.qkv_bias:  # its kernels are Qwen3's
            self._small = small_decoder(
                [_small_layer(weights, f"layers.{i}") for i in range(config.num_hidden_layers)],
                weights["final_norm"],
                self._spec,
                eps=config.rms_norm_eps,
            )

    def forward(self, batch: PackedBatch) -> Tensor:
        """Packed tokens to states [T, D]."""
        rotary = self._rotary.at(batch)
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


def build(
    config: DecoderConfig, weights: dict[str, Tensor], backends: Sequence[AttentionBackend]
) -> Decoder:
    """Registry entry."""
    (backend,) = backends
    return Decoder(config, weights, backend)
