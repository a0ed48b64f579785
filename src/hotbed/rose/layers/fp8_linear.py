"""A linear layer's product in FP8: e4m3 weights with a scale for each output channel, made when the
model is built, times e4m3 activations with a scale for each token.

    y[t, n] = scale[t] scale[n] sum_k x[t, k] W[n, k]        y in BF16

The sums are the tensor core's own, of about 14 bits (`gemm_files.FP8_OPERANDS`).

What reads the layer's result stays BF16: attention, the residual stream, norms, pooling, heads. The
products come from the folder of kernels, with what follows them in the epilogue, or from
`torch._scaled_mm` (cuBLAS) with passes of their own behind it. Activations come in FP8 from the
norm that made them, or are rounded here.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from hotbed.core.errors import invalid
from hotbed.rose.kernels.fp8 import MULTIPLE, Fp8Rows, quantize_rows
from hotbed.rose.layers.fused import gemm_for

Activations = Tensor | Fp8Rows
"""What a linear layer reads: BF16 [T, K], or that in FP8."""


class Fp8Product:
    """x W^T with what is added to it.

    Args:
        weight: BF16 [N, K], on a GPU; not kept.
        has_bias: whether a bias follows.
        kernels: the launchers.

    Attributes:
        weight: the same in FP8.

    Raises:
        HotbedError: INVALID_INPUT if the shape is none for FP8.
    """

    def __init__(self, weight: Tensor, *, has_bias: bool, kernels: ModuleType) -> None:
        if any(size % MULTIPLE for size in weight.shape):
            raise invalid(
                f"dtype fp8: a linear layer has a weight of {list(weight.shape)}, both must be "
                f"multiples of {MULTIPLE}"
            )
        self.weight = quantize_rows(weight)
        self._kernels = kernels
        self._plain = gemm_for(weight, "bias" if has_bias else "plain")
        self._added = gemm_for(weight, "add")

    def rows(self, x_TK: Activations) -> Fp8Rows:
        """x in FP8."""
        if isinstance(x_TK, Fp8Rows):
            return x_TK
        rows: Fp8Rows = self._kernels.fp8_rows(x_TK)
        return rows

    def __call__(self, x_TK: Activations, bias: Tensor | None) -> Tensor:
        """BF16 [T, N]; `bias` as said when it was built."""
        x_TK = self.rows(x_TK)
        if self._plain is not None:
            return self._plain(x_TK, self.weight, bias)
        return scaled_mm(x_TK, self.weight, bias)

    def add_(self, x_TK: Activations, residual_TN: Tensor) -> Tensor:
        """`residual` + x W^T, written over `residual`."""
        x_TK = self.rows(x_TK)
        if self._added is not None:
            return self._added(x_TK, self.weight, None, residual_TN)
        return residual_TN.add_(scaled_mm(x_TK, self.weight, None))


def scaled_mm(x: Fp8Rows, weight: Fp8Rows, bias: Tensor | None) -> Tensor:
    """x [T, K] times weight [N, K], + bias [N] or None, to BF16 [T, N]; sums by the tensor core."""
    return torch._scaled_mm(
        x.values,
        weight.values.T,
        scale_a=x.scales[:, None],
        scale_b=weight.scales[None],
        bias=bias,
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )


def wide(x: Activations) -> Tensor:
    """The BF16 form of what a norm made for a linear layer and for a residual."""
    if isinstance(x, Fp8Rows):
        assert x.wide is not None, "this norm's result is read by linear layers alone: a bug"
        return x.wide
    return x
