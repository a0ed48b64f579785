"""LayerNorm and RMSNorm over the last dimension.

LayerNorm: (x - mean) / sqrt(var + eps) * w + b     (Ba et al. 2016, arXiv 1607.06450)
RMSNorm:   x / sqrt(mean(x^2) + eps) * w            (Zhang and Sennrich 2019, arXiv 1910.07467)
"""

from __future__ import annotations

import torch
from torch import Tensor


class LayerNorm:
    """LayerNorm with weight [D] and bias [D]."""

    def __init__(self, weight: Tensor, bias: Tensor, *, eps: float) -> None:
        self._weight, self._bias, self._eps = weight, bias, eps

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., D] to the same shape and dtype; statistics in fp32."""
        return torch.layer_norm(x, self._weight.shape, self._weight, self._bias, self._eps)


class RMSNorm:
    """RMSNorm with weight [D]; statistics in fp32 whatever the dtype."""

    def __init__(self, weight: Tensor, *, eps: float) -> None:
        self._weight, self._eps = weight, eps

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., D] to the same shape and dtype."""
        x_fp32 = x.float()
        scale = torch.rsqrt(x_fp32.square().mean(-1, keepdim=True) + self._eps)
        return (x_fp32 * scale).to(x.dtype) * self._weight
