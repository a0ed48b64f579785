"""Score heads: one pooled row a sequence to logits, and logits to scores; all in fp32.

    logits = W2 tanh(W1 x + b1) + b2     BERT's pooler and classifier, RoBERTa's classification head
    logits = W x                         decoders

fp32 whatever the model computes in: near 1 two sigmoids of bfloat16 are the same number.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.core.model_info import Activation


class Head:
    """Pooled rows to logits.

    Args:
        out: weight [L, D] and bias [L] or None.
        dense: weight [D, D] and bias [D] of the layer before, which tanh follows; None: there is
            none.
    """

    def __init__(
        self, out: tuple[Tensor, Tensor | None], dense: tuple[Tensor, Tensor] | None = None
    ) -> None:
        self._out = out
        self._dense = dense

    def __call__(self, rows_SD: Tensor) -> Tensor:
        """fp32 [S, D] to fp32 [S, L]."""
        if self._dense is not None:
            rows_SD = torch.tanh(F.linear(rows_SD, *self._dense))
        return F.linear(rows_SD, *self._out)


def activate(logits_SL: Tensor, activation: Activation) -> Tensor:
    """Scores of the logits, over the labels of each row."""
    if activation == "sigmoid":
        return torch.sigmoid(logits_SL)
    return torch.softmax(logits_SL, dim=-1) if activation == "softmax" else logits_SL
