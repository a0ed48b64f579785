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

from hotbed.core.rope import DynamicScaling, RopeScaling, YarnScaling
from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.fused import kernels_for
from hotbed.rose.layers.rotary_scaling import dynamic_frequencies, fixed_frequencies


@dataclass(frozen=True, slots=True)
class Rotation:
    """The angles of one step, for all layers.

    Attributes:
        cos: fp32. On a CPU the rows of this step's tokens, [T, 1, H/2]; on a GPU a table
            [rows, H/2] in which the kernel finds the row of each token.
        sin: the same.
        positions: int32 [T], on a GPU each token's row of the table.
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

    With `DynamicScaling` a text longer than the trained positions has frequencies of its own, by
    its own length: what a text is embedded with does not depend on the batch it is in.

    Args:
        head_dim: H, even.
        theta: base of the frequencies.
        max_positions: rows of the tables.
        device: where the fp32 tables lie.
        scaling: of the frequencies; None: there is none.
    """

    def __init__(
        self,
        *,
        head_dim: int,
        theta: float,
        max_positions: int,
        device: torch.device,
        scaling: RopeScaling | None = None,
    ) -> None:
        self._head_dim, self._theta = head_dim, theta
        self._dynamic = scaling if isinstance(scaling, DynamicScaling) else None
        num_rows = (
            self._dynamic.original_max_position_embeddings if self._dynamic else max_positions
        )
        magnitude = scaling.magnitude if isinstance(scaling, YarnScaling) else 1.0
        self._frequencies = fixed_frequencies(head_dim, theta, scaling, device)
        positions = torch.arange(num_rows, dtype=torch.float32, device=device)
        angles = torch.outer(positions, self._frequencies)
        self._cos, self._sin = angles.cos() * magnitude, angles.sin() * magnitude
        self._kernels = kernels_for(self._cos)
        if self._kernels is not None:
            self._kernels.check_head_dim(head_dim)

    def at(self, batch: PackedBatch) -> Rotation:
        """The rotation of a step."""
        scaling, positions = self._dynamic, batch.positions
        if scaling is not None and batch.max_seqlen > scaling.original_max_position_embeddings:
            return self._by_length(batch, scaling)
        if self._kernels is not None:
            return Rotation(self._cos, self._sin, positions)
        cos, sin = self._cos[positions], self._sin[positions]
        return Rotation(cos.unsqueeze(1), sin.unsqueeze(1), positions)

    def _by_length(self, batch: PackedBatch, scaling: DynamicScaling) -> Rotation:
        """Each token's own angles; launches only, part of a GPU's graph."""
        offsets = batch.cu_seqlens
        lengths = offsets[1:] - offsets[:-1]
        frequencies = dynamic_frequencies(self._head_dim, self._theta, scaling, lengths)
        # Bit for bit what a step of short texts alone gets.
        is_short = (lengths <= scaling.original_max_position_embeddings)[:, None]
        frequencies = torch.where(is_short, self._frequencies, frequencies)
        tokens = torch.arange(len(batch.positions), dtype=torch.int32, device=offsets.device)
        # On a CPU pad rows lie behind the last sequence; any frequencies will do for them.
        slots = torch.searchsorted(offsets[1:], tokens, right=True).clamp_max(len(offsets) - 2)
        angles = batch.positions.float()[:, None] * frequencies[slots]
        cos, sin = angles.cos(), angles.sin()
        if self._kernels is not None:
            return Rotation(cos, sin, tokens)
        return Rotation(cos.unsqueeze(1), sin.unsqueeze(1), batch.positions)
