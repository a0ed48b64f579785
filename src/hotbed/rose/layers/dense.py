"""Dense modules behind the pooling: row = activation(row W^T + b), in fp32 on either device."""

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
    """One module: weight fp32 [out, in], bias fp32 [out] or None."""

    weight: Tensor
    bias: Tensor | None
    activation: DenseActivation

    def __call__(self, rows_SI: Tensor, *, fixed: bool = False) -> Tensor:
        """Fp32 rows [S, in] to [S, out]; `fixed` as for `rows_fp32`."""
        y = linear(rows_SI, self.weight, self.bias, fixed=fixed)
        return _ACTIVATIONS[self.activation](y)


def project(rows_SD: Tensor, modules: Sequence[Dense], *, fixed: bool = False) -> Tensor:
    """Pooled fp32 rows [S, D] through all modules; `fixed` as for `rows_fp32`."""
    for module in modules:
        rows_SD = module(rows_SD, fixed=fixed)
    return rows_SD
