"""Dense modules behind the pooling: row = activation(row W^T + b), in fp32 on either device.

They run once a sequence, not once a token, so fp32 costs nothing that shows, and a row is rounded
only when it is sent. F.linear in fp32 does not use TF32 unless a process asks for it.
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
    """One module: weight fp32 [out, in], bias fp32 [out] or None."""

    weight: Tensor
    bias: Tensor | None
    activation: DenseActivation

    def __call__(self, rows_SI: Tensor) -> Tensor:
        """Fp32 rows [S, in] to [S, out]."""
        return _ACTIVATIONS[self.activation](F.linear(rows_SI, self.weight, self.bias))


def project(rows_SD: Tensor, modules: Sequence[Dense]) -> Tensor:
    """Pooled fp32 rows [S, D] through all modules."""
    for module in modules:
        rows_SD = module(rows_SD)
    return rows_SD
