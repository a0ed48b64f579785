"""Dense modules behind the pooling: row = activation(row W^T + b), in fp32 on either device.

They run once a sequence; those of multi-vector models run once a token: one layer beside the
model's many. So fp32 costs little (`rows_fp32`).

Whether a row is finite is looked at before each activation: tanh makes 1 of infinity, ReLU 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.rose.layers.rows_fp32 import linear

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

    def __call__(self, rows_SI: Tensor, *, fixed: bool = False) -> tuple[Tensor, Tensor]:
        """Fp32 rows [S, in] to [S, out], and what of them was finite before the activation.

        `fixed` as for `rows_fp32`.
        """
        linear_SO = linear(rows_SI, self.weight, self.bias, fixed=fixed)
        out_SO = _ACTIVATIONS[self.activation](linear_SO)
        if self.adds_input:
            out_SO = out_SO + (
                rows_SI
                if self.residual is None
                else linear(rows_SI, self.residual, None, fixed=fixed)
            )
        return out_SO, are_finite(linear_SO)


def project(
    rows_SD: Tensor, modules: Sequence[Dense], *, fixed: bool = False
) -> tuple[Tensor, Tensor]:
    """Pooled fp32 rows [S, D] through all modules; `fixed` as for `rows_fp32`.

    Returns:
        The rows, fp32 [S, out], and bool [S]: whether all values on the way there were finite.
    """
    finite = are_finite(rows_SD)
    for module in modules:
        rows_SD, still_finite = module(rows_SD, fixed=fixed)
        finite = finite & still_finite
    return rows_SD, finite


def are_finite(rows_SD: Tensor) -> Tensor:
    """Rows [S, D] to bool [S]: whether all of a row is finite."""
    return torch.isfinite(rows_SD).all(dim=-1)
