"""Rotary position embedding in the half-split form that Qwen3 and Llama use.

For each pair (i, i + H/2) of a head, angle a = position * theta^(-2i/H):
    y[i]       = x[i] cos a - x[i + H/2] sin a
    y[i + H/2] = x[i + H/2] cos a + x[i] sin a
Source: Su et al. 2021, arXiv 2104.09864; the half-split layout is GPT-NeoX's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hotbed.rose.layers.fused import kernels_for


@dataclass(frozen=True, slots=True)
class Rotation:
    """The angles of one step, for all layers.

    Attributes:
        cos: fp32. On a CPU the rows of this step's positions, [T, 1, H/2]; on a GPU the whole table
            [positions, H/2], in which the kernel finds the row of each token.
        sin: the same.
        positions: int32 [T].
    """

    cos: Tensor
    sin: Tensor
    positions: Tensor

    def apply(self, x_TNH: Tensor) -> Tensor:
        """Rotate x [T, N, H] on a CPU; the arithmetic is fp32, the result has x's dtype."""
        first, second = x_TNH.float().chunk(2, dim=-1)
        cos, sin = self.cos, self.sin
        rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        return rotated.to(x_TNH.dtype)


class Rotary:
    """Tables of cos and sin for positions 0 to max_positions - 1.

    Args:
        head_dim: H, even.
        theta: base of the frequencies.
        max_positions: rows of the tables.
        device: where the fp32 tables lie.
    """

    def __init__(
        self, *, head_dim: int, theta: float, max_positions: int, device: torch.device
    ) -> None:
        exponent = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
        inverse = 1.0 / (theta**exponent)
        positions = torch.arange(max_positions, dtype=torch.float32, device=device)
        angles = torch.outer(positions, inverse)
        self._cos, self._sin = angles.cos(), angles.sin()
        self._kernels = kernels_for(self._cos)
        if self._kernels is not None:
            self._kernels.check_head_dim(head_dim)

    def at(self, positions: Tensor) -> Rotation:
        """The rotation of a step with int32 positions [T]."""
        if self._kernels is not None:
            return Rotation(self._cos, self._sin, positions)
        cos, sin = self._cos[positions], self._sin[positions]
        return Rotation(cos.unsqueeze(1), sin.unsqueeze(1), positions)
