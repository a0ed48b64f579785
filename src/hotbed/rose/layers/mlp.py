"""The two feed-forward blocks. Legend: T tokens, D hidden, F mlp dim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from hotbed.rose.layers.linear import Linear
from hotbed.rose.layers.norm import BlockEnd

Gate = Literal["silu", "gelu", "gelu_tanh"]

_GATES: dict[Gate, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


class GatedMlp:
    """down(activation(gate) * up) + residual                (Shazeer 2020, arXiv 2002.05202).

    Args:
        gate_up: D to 2 F, gate first.
        down: F to D; the norm of a post-norm block is part of it.
        activation: of the gate: SwiGLU, GeGLU, or GeGLU by the tanh approximation.
    """

    def __init__(self, gate_up: Linear, down: BlockEnd, activation: Gate = "silu") -> None:
        self._gate_up, self._down, self._activation = gate_up, down, activation
        self._kernels = gate_up.kernels
        if self._kernels is not None:
            self._kernels.check_multiple("a gated MLP", gate_up.out_features // 2)

    def __call__(self, x_TD: Tensor, residual: Tensor) -> Tensor:
        """x [T, D] and `residual` [T, D], which may be written to, to [T, D]."""
        if self._kernels is not None:
            gated = self._kernels.swiglu(self._gate_up(x_TD), self._activation)
            return self._down(gated, residual)
        gate, up = self._gate_up(x_TD).chunk(2, dim=-1)
        return self._down(_GATES[self._activation](gate).mul_(up), residual)


class Mlp:
    """down(activation(up(x))) + residual; the norm of a post-norm block is part of `down`.

    Args:
        up: D to F, with its activation.
        down: F to D.
    """

    def __init__(self, up: Linear, down: BlockEnd) -> None:
        self._up, self._down = up, down

    def __call__(self, x_TD: Tensor, residual: Tensor) -> Tensor:
        """x [T, D] and `residual` [T, D], which may be written to, to [T, D]."""
        return self._down(self._up(x_TD), residual)
