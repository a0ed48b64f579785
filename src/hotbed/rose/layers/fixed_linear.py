"""A linear layer's product in one tiling for steps of all sizes, so that a row's bits are its own.

From the folder of kernels, whose GEMMs have one tile and one order of sums for any number of rows
(`hotbed.rose.kernels.gemm`), or from a slower kernel of ours (`fixed_gemm`); never from cuBLAS.
"""

from __future__ import annotations

from types import ModuleType

from torch import Tensor

from hotbed.rose.layers.fp8_linear import Activations
from hotbed.rose.layers.fused import gemm_for


class FixedProduct:
    """x W^T with what is added to it.

    Args:
        weight: [N, K], on a GPU.
        has_bias: whether a bias follows.
        kernels: the launchers.
    """

    def __init__(self, weight: Tensor, *, has_bias: bool, kernels: ModuleType) -> None:
        self.weight = weight
        self._kernels = kernels
        self._plain = gemm_for(weight, "bias" if has_bias else "plain")
        self._added = gemm_for(weight, "add")

    def rows(self, x_TK: Activations) -> Tensor:
        """x as the product takes it: as it is."""
        assert isinstance(x_TK, Tensor), "norms make FP8 for layers in FP8 alone: a bug"
        return x_TK

    def __call__(self, x_TK: Activations, bias: Tensor | None) -> Tensor:
        """[T, N] of x's dtype; `bias` as said when it was built."""
        x_TK = self.rows(x_TK)
        if self._plain is not None:
            return self._plain(x_TK, self.weight, bias)
        y: Tensor = self._kernels.fixed_gemm(x_TK, self.weight, bias)
        return y

    def add_(self, x_TK: Activations, residual_TN: Tensor) -> Tensor:
        """`residual` + x W^T, written over `residual`."""
        x_TK = self.rows(x_TK)
        if self._added is not None:
            return self._added(x_TK, self.weight, None, residual_TN)
        y: Tensor = self._kernels.fixed_gemm(x_TK, self.weight, None, residual_TN)
        return y
