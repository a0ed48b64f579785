"""The two feed-forward blocks. Legend: T tokens, D hidden, F mlp dim."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from hotbed.rose.layers.fused import gemm_for
from hotbed.rose.layers.linear import Linear
from hotbed.rose.layers.norm import LinearThenNorm


class SwiGluMlp:
    """down(silu(gate) * up) + residual                      (Shazeer 2020, arXiv 2002.05202).

    Args:
        gate_up: D to 2 F, gate first.
        down: F to D.
    """

    def __init__(self, gate_up: Linear, down: Linear) -> None:
        self._gate_up, self._down = gate_up, down
        self._kernels = gate_up.kernels
        if self._kernels is not None:
            self._kernels.check_multiple("SwiGLU", down.in_features)
        self._fused = gemm_for(gate_up.weight, "swiglu")

    def __call__(self, x_TD: Tensor, residual: Tensor) -> Tensor:
        """x [T, D] and `residual` [T, D], which may be written to, to [T, D]."""
        if self._fused is not None and self._fused.takes(x_TD):
            return self._down(self._fused(x_TD, self._gate_up.weight), residual)
        if self._kernels is not None:
            return self._down(self._kernels.swiglu(self._gate_up(x_TD)), residual)
        gate, up = self._gate_up(x_TD).chunk(2, dim=-1)
        return self._down(F.silu(gate).mul_(up), residual)


class Mlp:
    """down(activation(up(x))) + residual; the norm of a post-norm block is part of `down`.

    Args:
        up: D to F, with its activation.
        down: F to D.
    """

    def __init__(self, up: Linear, down: Linear | LinearThenNorm) -> None:
        self._up, self._down = up, down

    def __call__(self, x_TD: Tensor, residual: Tensor) -> Tensor:
        """x [T, D] and `residual` [T, D], which may be written to, to [T, D]."""
        return self._down(self._up(x_TD), residual)
