"""Rotary position embedding in the half-split form that Qwen3 and Llama use.

For each pair (i, i + H/2) of a head, angle a = position * theta^(-2i/H):
    y[i]       = x[i] cos a - x[i + H/2] sin a
    y[i + H/2] = x[i + H/2] cos a + x[i] sin a
Source: Su et al. 2021, arXiv 2104.09864; the half-split layout is GPT-NeoX's.
"""

from __future__ import annotations

import torch
from torch import Tensor


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

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """(cos, sin) of int positions [T], fp32 [T, 1, H/2] each; once a step, for all layers."""
        return self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)

    @staticmethod
    def apply(x_TNH: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate x [T, N, H]; the arithmetic is fp32, the result has x's dtype."""
        first, second = x_TNH.float().chunk(2, dim=-1)
        rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        return rotated.to(x_TNH.dtype)
