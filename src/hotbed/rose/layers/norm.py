"""LayerNorm and RMSNorm over the last dimension.

LayerNorm: (x - mean) / sqrt(var + eps) * w + b     (Ba et al. 2016, arXiv 1607.06450)
RMSNorm:   x / sqrt(mean(x^2) + eps) * w            (Zhang and Sennrich 2019, arXiv 1910.07467)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self, TypeVar

import torch
from torch import Tensor

from hotbed.rose.layers.fp8_linear import Activations, wide
from hotbed.rose.layers.fused import current_mode, kernels_for
from hotbed.rose.layers.linear import Linear

Stream = TypeVar("Stream", bound=Activations)
"""The residual stream: BF16, or behind a post-norm that with its FP8 form for the next layer."""


class BlockEnd(Protocol[Stream]):
    """What an attention layer or an MLP may end in: a linear layer, the residual, often a norm."""

    def __call__(self, x_TI: Activations, residual: Stream) -> Stream:
        """x [T, in] and `residual` [T, out], which may be written to, to [T, out]."""
        ...


class LayerNorm:
    """LayerNorm with weight [D] and bias [D], or None for no bias."""

    def __init__(self, weight: Tensor, bias: Tensor | None, *, eps: float) -> None:
        # Zeros cost a kernel nothing that shows, and it keeps one form.
        self._bias = torch.zeros_like(weight) if bias is None else bias
        self._weight, self._eps = weight, eps
        self._fixed = current_mode().invariant
        self._kernels = kernels_for(weight)
        if self._kernels is not None:
            self._kernels.check_width("LayerNorm", len(weight))

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., D], on a GPU [T, D], to the same shape and dtype; statistics in fp32."""
        if self._kernels is not None:
            y: Tensor = self._kernels.layer_norm(
                x, self._weight, self._bias, eps=self._eps, fixed=self._fixed
            )
            return y
        return torch.layer_norm(x, self._weight.shape, self._weight, self._bias, self._eps)


class RMSNorm:
    """RMSNorm with weight [D]; statistics in fp32 whatever the dtype."""

    def __init__(self, weight: Tensor, *, eps: float) -> None:
        self.weight, self.eps = weight, eps
        self._fixed, self._fp8 = current_mode().invariant, current_mode().fp8
        self._kernels = kernels_for(weight)
        if self._kernels is not None:
            self._kernels.check_width("RMSNorm", len(weight))

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., D], on a GPU [T, D], to the same shape and dtype."""
        if self._kernels is not None:
            y: Tensor = self._kernels.rms_norm(x, self.weight, eps=self.eps, fixed=self._fixed)
            return y
        x_fp32 = x.float()
        scale = torch.rsqrt(x_fp32.square().mean(-1, keepdim=True) + self.eps)
        return (x_fp32 * scale).to(x.dtype) * self.weight

    def for_linear(self, x_TD: Tensor) -> Activations:
        """The same where linear layers alone read the result: in FP8 if they compute so."""
        if self._kernels is None or not self._fp8:
            return self(x_TD)
        y: Activations = self._kernels.rms_norm_fp8(x_TD, self.weight, eps=self.eps)
        return y


class LinearThenRMSNorm:
    """The end of a block with norms on both sides: residual + RMSNorm(x W^T). Stands where a Linear
    may.
    """

    def __init__(self, linear: Linear, norm: RMSNorm) -> None:
        self._linear, self._norm = linear, norm

    def __call__(self, x_TI: Activations, residual: Tensor) -> Tensor:
        """x [T, in] and `residual` [T, out] to [T, out], written over `residual`."""
        return residual.add_(self._norm(self._linear(x_TI)))


class LinearThenNorm:
    """The end of a post-norm block: LayerNorm(residual + x W^T + b). Stands where a Linear may.

    On a GPU the norm's kernel adds residual and bias: the GEMM then has nothing to read but its
    operands, and the sum is not rounded before the norm.

    Args:
        weight: of the linear layer, [out, in].
        bias: of the linear layer, [out], or None.
        norm_weight: [out].
        norm_bias: [out].
        eps: of the norm.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        *,
        norm_weight: Tensor,
        norm_bias: Tensor,
        eps: float,
    ) -> None:
        self._kernels = kernels_for(weight)
        self._bias, self._norm_weight, self._norm_bias = bias, norm_weight, norm_bias
        self._eps = eps
        self._linear = Linear(weight, bias if self._kernels is None else None)
        self._norm = LayerNorm(norm_weight, norm_bias, eps=eps)
        self._fixed = current_mode().invariant
        self._launch: Any = None
        if self._kernels is not None:
            is_fp8 = current_mode().fp8
            self._launch = self._kernels.layer_norm_fp8 if is_fp8 else self._kernels.layer_norm

    @classmethod
    def of(cls, weights: Mapping[str, Tensor], linear: str, norm: str, *, eps: float) -> Self:
        """From a model's parameters, by the names of the linear layer and of its norm."""
        return cls(
            weights[f"{linear}.weight"],
            weights.get(f"{linear}.bias"),
            norm_weight=weights[f"{norm}.weight"],
            norm_bias=weights[f"{norm}.bias"],
            eps=eps,
        )

    def __call__(self, x_TI: Activations, residual: Activations) -> Activations:
        """x [T, in] and `residual` [T, out] to [T, out]; in FP8 with its BF16 form beside it."""
        if self._launch is not None:
            y: Activations = self._launch(
                self._linear(x_TI),
                self._norm_weight,
                self._norm_bias,
                eps=self._eps,
                linear_bias=self._bias,
                residual=wide(residual),
                fixed=self._fixed,
            )
            return y
        return self._norm(self._linear(x_TI, wide(residual)))
