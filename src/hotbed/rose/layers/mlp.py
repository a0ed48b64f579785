"""The two feed-forward blocks. Legend: T tokens, D hidden, F mlp dim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Literal

import torch.nn.functional as F
from torch import Tensor

from hotbed.rose.kernels.fp8 import gate_and_up
from hotbed.rose.layers.fp8_linear import Activations, Fp8Product
from hotbed.rose.layers.fused import gemm_for
from hotbed.rose.layers.linear import Linear
from hotbed.rose.layers.norm import BlockEnd, Stream

Gate = Literal["silu", "gelu", "gelu_tanh"]

_GATES: dict[Gate, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


class GatedMlp(Generic[Stream]):
    """down(activation(gate) * up) + residual                (Shazeer 2020, arXiv 2002.05202).

    Args:
        gate_up: D to 2 F, gate first.
        down: F to D; the norm of a post-norm block is part of it.
        activation: of the gate: SwiGLU, GeGLU, or GeGLU by the tanh approximation.
    """

    def __init__(self, gate_up: Linear, down: BlockEnd[Stream], activation: Gate = "silu") -> None:
        self._gate_up, self._down, self._activation = gate_up, down, activation
        self._kernels = gate_up.kernels
        if self._kernels is not None:
            self._kernels.check_multiple("a gated MLP", gate_up.out_features // 2)
        self._fused = None
        if activation == "silu" and not gate_up.has_bias:
            self._fused = gemm_for(gate_up.weight, "swiglu")
        self._fused_fp8_weight = None
        if self._fused is not None and gate_up.fp8 is not None:
            self._fused_fp8_weight = gate_and_up(gate_up.fp8.weight)

    def __call__(self, x_TD: Activations, residual: Stream) -> Stream:
        """x [T, D] and `residual` [T, D], which may be written to, to [T, D]."""
        if self._gate_up.fp8 is not None:
            return self._down(self._gated_in_fp8(self._gate_up.fp8, x_TD), residual)
        assert isinstance(x_TD, Tensor), "norms make FP8 for layers in FP8 alone: a bug"
        if self._fused is not None and self._fused.takes(x_TD):
            return self._down(self._fused(x_TD, self._gate_up.weight), residual)
        if self._kernels is not None:
            gated = self._kernels.swiglu(self._gate_up(x_TD), self._activation)
            return self._down(gated, residual)
        gate, up = self._gate_up(x_TD).chunk(2, dim=-1)
        return self._down(_GATES[self._activation](gate).mul_(up), residual)

    def _gated_in_fp8(self, fp8: Fp8Product, x_TD: Activations) -> Activations:
        if self._fused is not None and self._fused_fp8_weight is not None:
            return self._fused(fp8.rows(x_TD), self._fused_fp8_weight)
        assert self._kernels is not None, "FP8 is for GPUs alone"
        gated: Activations = self._kernels.fp8_rows(self._gate_up(x_TD), self._activation)
        return gated


class Mlp(Generic[Stream]):
    """down(activation(up(x))) + residual; the norm of a post-norm block is part of `down`.

    Args:
        up: D to F, with its activation.
        down: F to D.
    """

    def __init__(self, up: Linear, down: BlockEnd[Stream]) -> None:
        self._up, self._down = up, down

    def __call__(self, x_TD: Activations, residual: Stream) -> Stream:
        """x [T, D] and `residual` [T, D], which may be written to, to [T, D]."""
        return self._down(self._up(x_TD), residual)
