"""The layer of BERT and its relatives, which differ in the attention alone.

    h = LayerNorm(h + attention(h));  h = LayerNorm(h + W2 act(W1 h))      (arXiv 1810.04805)

Legend: T tokens, D hidden.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from hotbed.rose.attention.backend import AttentionSpec
from hotbed.rose.layers.attention import RunsAttention, SelfAttention
from hotbed.rose.layers.fp8_linear import Activations
from hotbed.rose.layers.linear import Activation, Linear
from hotbed.rose.layers.mlp import Mlp
from hotbed.rose.layers.norm import LinearThenNorm


class PostNormLayer:
    """One encoder layer.

    Args:
        weights: of the model, with qkv, out, attention_norm, up, down and mlp_norm behind `name`.
        name: of the layer's, e.g. ``layers.0``.
        spec: heads of the attention.
        backend: what computes it.
        eps: of the norms.
        activation: of the MLP.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        name: str,
        *,
        spec: AttentionSpec,
        backend: RunsAttention,
        eps: float,
        activation: Activation = "gelu",
    ) -> None:
        def linear(part: str, activation: Activation = "none") -> Linear:
            weight, bias = (weights[f"{name}.{part}.{kind}"] for kind in ("weight", "bias"))
            return Linear(weight, bias, activation=activation)

        def then_norm(part: str, norm: str) -> LinearThenNorm:
            return LinearThenNorm.of(weights, f"{name}.{part}", f"{name}.{norm}", eps=eps)

        self.attention = SelfAttention(
            qkv=linear("qkv"), out=then_norm("out", "attention_norm"), spec=spec, backend=backend
        )
        self.mlp = Mlp(up=linear("up", activation), down=then_norm("down", "mlp_norm"))

    def __call__(self, x_TD: Activations, plan: object) -> Activations:
        x_TD = self.attention(x_TD, residual=x_TD, plan=plan)
        return self.mlp(x_TD, residual=x_TD)
