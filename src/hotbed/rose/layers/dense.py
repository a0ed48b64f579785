"""Dense modules behind the pooling: row = activation(row W^T + b), in fp32 on either device.

They run once a sequence, so fp32 costs nothing that shows, and a row is rounded only when it is
sent. Those of multi-vector models run once a token: one layer beside the model's many. F.linear in
fp32 does not use TF32 unless a process asks for it.

Whether a row is finite is looked at before each activation: tanh makes 1 of infinity, ReLU 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

DenseActivation = Literal["none", "tanh", "relu", "gelu"]

_ACTIVATIONS: dict[DenseActivation, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "tanh": torch.tanh,
    "relu": F.relu,
    "gelu": F.gelu,
}


@dataclass(frozen=True, slots=True)
class Dense:
    """One module: weight fp32 [out, in], bias fp32 [out] or None.

    Attributes:
        adds_input: whether the input is added behind the activation,
        residual: by way of this, fp32 [out, in], or as it is.
    """

    weight: Tensor
    bias: Tensor | None
    activation: DenseActivation
    adds_input: bool = False
    residual: Tensor | None = None

    def __call__(self, rows_SI: Tensor) -> tuple[Tensor, Tensor]:
        """Fp32 rows [S, in] to [S, out], and what of them was finite before the activation."""
        linear_SO = F.linear(rows_SI, self.weight, self.bias)
        out_SO = _ACTIVATIONS[self.activation](linear_SO)
        if self.adds_input:
            out_SO = out_SO + (
                rows_SI if self.residual is None else F.linear(rows_SI, self.residual)
            )
        return out_SO, are_finite(linear_SO)


def project(rows_SD: Tensor, modules: Sequence[Dense]) -> tuple[Tensor, Tensor]:
    """Pooled fp32 rows [S, D] through all modules.

    Returns:
        The rows, fp32 [S, out], and bool [S]: whether all values on the way there were finite.
    """
    finite = are_finite(rows_SD)
    for module in modules:
        rows_SD, still_finite = module(rows_SD)
        finite = finite & still_finite
    return rows_SD, finite


def are_finite(rows_SD: Tensor) -> Tensor:
    """Rows [S, D] to bool [S]: whether all of a row is finite."""
    return torch.isfinite(rows_SD).all(dim=-1)
