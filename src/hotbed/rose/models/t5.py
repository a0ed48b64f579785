"""T5's encoder: pre-norm layers without biases, with a learned bias for the distance of two tokens.

    h = word
    for each layer:  h = h + attention(RMSNorm(h))        scores are not scaled
                     h = h + W2 relu(W1 n), or down(gelu(gate(n)) * up(n)), n = RMSNorm(h)
    after the last:  RMSNorm(h)

The bias is one table for all layers, stored with the first one. Sources: Raffel et al. 2019, arXiv
1910.10683; Shazeer 2020, arXiv 2002.05202. Legend: T tokens, D hidden, F mlp dim, N heads, H head
dim.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from hotbed.checkpoint.records import T5Config
from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.attention import SelfAttention
from hotbed.rose.layers.linear import Linear
from hotbed.rose.layers.mlp import GatedMlp, Mlp
from hotbed.rose.layers.norm import RMSNorm
from hotbed.rose.layers.relative_bias import RelativeBiasAttention, learned
from hotbed.rose.weights import Parameter, WeightMap, linear

_UNUSED = (r"encoder\.embed_tokens\.weight", r"decoder\..*", r"lm_head\.weight")


def attention_specs(config: T5Config) -> tuple[AttentionSpec, ...]:
    """Registry entry: no backend takes a bias, so the model brings its own attention."""
    return ()


def weight_map(config: T5Config) -> WeightMap:
    """Parameters by name and the stored tensors they come from."""
    d, f, n = config.hidden_size, config.intermediate_size, config.num_attention_heads
    inner = n * config.head_dim
    distance = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    parameters = {
        "word": Parameter(("shared.weight",), (config.vocab_size, d)),
        "distance": Parameter((distance,), (config.relative_attention_num_buckets, n)),
        "final_norm": Parameter(("encoder.final_layer_norm.weight",), (d,)),
    }
    for i in range(config.num_hidden_layers):
        first, second = (f"encoder.block.{i}.layer.{part}" for part in (0, 1))
        made = f"layers.{i}"
        qkv = tuple(f"{first}.SelfAttention.{part}" for part in "qkv")
        mlp = f"{second}.DenseReluDense"
        out = (f"{first}.SelfAttention.o",)
        up = (f"{mlp}.wi_0", f"{mlp}.wi_1") if config.is_gated else (f"{mlp}.wi",)
        parameters |= linear(f"{made}.qkv", qkv, (3 * inner, d), bias=False)
        parameters |= linear(f"{made}.out", out, (d, inner), bias=False)
        parameters |= linear(f"{made}.up", up, (len(up) * f, d), bias=False)
        parameters |= linear(f"{made}.down", (f"{mlp}.wo",), (d, f), bias=False)
        for norm, source in (("attention_norm", first), ("mlp_norm", second)):
            parameters[f"{made}.{norm}"] = Parameter((f"{source}.layer_norm.weight",), (d,))
    return WeightMap(parameters, _UNUSED)


class T5Layer:
    """One encoder layer."""

    def __init__(
        self,
        config: T5Config,
        weights: dict[str, Tensor],
        name: str,
        attention: RelativeBiasAttention,
    ) -> None:
        def weight(part: str) -> Tensor:
            return weights[f"{name}.{part}.weight"]

        heads, eps = config.num_attention_heads, config.layer_norm_eps
        self.attention_norm = RMSNorm(weights[f"{name}.attention_norm"], eps=eps)
        self.mlp_norm = RMSNorm(weights[f"{name}.mlp_norm"], eps=eps)
        self.attention: SelfAttention[Tensor] = SelfAttention(
            qkv=Linear(weight("qkv")),
            out=Linear(weight("out")),
            spec=AttentionSpec(heads, heads, config.head_dim, causal=False),
            backend=attention,
        )
        down = Linear(weight("down"))
        self.mlp: GatedMlp[Tensor] | Mlp[Tensor] = (
            GatedMlp(Linear(weight("up")), down, "gelu_tanh")
            if config.is_gated
            else Mlp(Linear(weight("up"), activation="relu"), down)
        )

    def __call__(self, x_TD: Tensor, plan: object) -> Tensor:
        x_TD = self.attention(self.attention_norm.for_linear(x_TD), residual=x_TD, plan=plan)
        return self.mlp(self.mlp_norm.for_linear(x_TD), residual=x_TD)


class T5:
    """The encoder; `forward` gives the states after the final norm."""

    def __init__(self, config: T5Config, weights: dict[str, Tensor]) -> None:
        self._word = weights["word"]
        table = learned(weights["distance"], config.longest_sequence)
        self._attention = RelativeBiasAttention(table, scale=1.0)
        self._layers = [
            T5Layer(config, weights, f"layers.{i}", self._attention)
            for i in range(config.num_hidden_layers)
        ]
        self._final_norm = RMSNorm(weights["final_norm"], eps=config.layer_norm_eps)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Packed tokens to states [T, D]."""
        plan = self._attention.plan(batch)
        x_TD = F.embedding(batch.token_ids, self._word)
        for layer in self._layers:
            x_TD = layer(x_TD, plan)
        return self._final_norm(x_TD)


def build(config: T5Config, weights: dict[str, Tensor], backends: Sequence[AttentionBackend]) -> T5:
    """Registry entry."""
    assert not backends, "the model asks for none"
    return T5(config, weights)
