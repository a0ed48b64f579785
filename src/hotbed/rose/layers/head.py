"""Score heads: one pooled row a sequence to logits, and logits to scores; all in fp32.

    logits = W2 act(W1 x + b1) + b2     BERT and RoBERTa: tanh, DistilBERT: ReLU, others: GELU
    logits = W2 LayerNorm(act(W1 x + b1)) + b2     ModernBERT: GELU
    logits = W x     decoders

fp32 whatever the model computes in: near 1 two sigmoids of bfloat16 are the same number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.core.model_info import Activation
from hotbed.rose.layers.dense import are_finite
from hotbed.rose.layers.rows_fp32 import linear

HeadActivation = Literal["tanh", "relu", "gelu"]

_ACTIVATIONS: dict[HeadActivation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": F.relu,
    "gelu": F.gelu,
}


@dataclass(frozen=True, slots=True)
class HeadDense:
    """The layer before the output.

    Attributes:
        weight: [D, D].
        bias: [D] or None.
        activation: behind it.
        norm: weight [D] of the LayerNorm behind that, and its eps; None: there is none.
    """

    weight: Tensor
    bias: Tensor | None
    activation: HeadActivation
    norm: tuple[Tensor, float] | None = None

    def __call__(self, rows_SD: Tensor, *, fixed: bool = False) -> tuple[Tensor, Tensor]:
        """fp32 [S, D] to fp32 [S, D], and bool [S]: finite before the activation.

        `fixed` as for `rows_fp32`.
        """
        linear_SD = linear(rows_SD, self.weight, self.bias, fixed=fixed)
        rows_SD = _ACTIVATIONS[self.activation](linear_SD)
        if self.norm is not None:
            weight, eps = self.norm
            rows_SD = F.layer_norm(rows_SD, weight.shape, weight, None, eps)
        return rows_SD, are_finite(linear_SD)


class Head:
    """Pooled rows to logits.

    Args:
        out: weight [L, D] and bias [L] or None.
        dense: the layer before; None: there is none.
    """

    def __init__(self, out: tuple[Tensor, Tensor | None], dense: HeadDense | None = None) -> None:
        self._out = out
        self._dense = dense

    def __call__(self, rows_SD: Tensor, *, fixed: bool = False) -> tuple[Tensor, Tensor]:
        """fp32 [S, D] to fp32 [S, L], and bool [S]: whether all values on the way were finite.

        `fixed` as for `rows_fp32`.
        """
        finite = are_finite(rows_SD)
        if self._dense is not None:
            rows_SD, still_finite = self._dense(rows_SD, fixed=fixed)
            finite = finite & still_finite
        logits_SL = linear(rows_SD, *self._out, fixed=fixed)
        return logits_SL, finite & are_finite(logits_SL)


def activate(logits_SL: Tensor, activation: Activation) -> Tensor:
    """Scores of the logits, over the labels of each row."""
    if activation == "sigmoid":
        return torch.sigmoid(logits_SL)
    return torch.softmax(logits_SL, dim=-1) if activation == "softmax" else logits_SL
