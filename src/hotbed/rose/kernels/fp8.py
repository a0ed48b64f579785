"""FP8 (e4m3) with a scale for each row: what it is made of, and plain torch that makes it.

    values = e4m3(x / scale),  scale = max|x| / 448  over a row of x

448 is the largest number of e4m3, which has 3 bits behind the leading one: a value is off by at
most 2^-4 of itself, or by 2^-10 of the scale where it is small (Micikevicius et al. 2022,
arXiv 2209.05433). A row of a weight is an output channel, a row of activations a token.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

DTYPE = torch.float8_e4m3fn
LARGEST = 448.0
SMALLEST_ROW = 1e-30
"""Rows whose largest value is below this are scaled as if it were this: zeros stay zeros."""
MULTIPLE = 16
"""Rows and columns of a weight come in multiples of so many bytes, for the GEMMs."""


@dataclass(frozen=True, slots=True)
class Fp8Rows:
    """A matrix in FP8.

    Attributes:
        values: e4m3 [R, K], contiguous.
        scales: fp32 [R].
        wide: BF16 [R, K], the same matrix before it was rounded, where somebody else reads it.
        scales_in_turn: fp32 [R], of a stacked [gate | up] weight: a gate's scale, then its up's.
    """

    values: Tensor
    scales: Tensor
    wide: Tensor | None = None
    scales_in_turn: Tensor | None = None

    def __len__(self) -> int:
        return len(self.values)

    def float(self) -> Tensor:
        """fp32 [R, K]: what the values stand for."""
        return self.values.float() * self.scales[:, None]


def gate_and_up(weight: Fp8Rows) -> Fp8Rows:
    """A stacked [gate | up] weight with its scales in turn, too, as the kernel with SwiGLU in its
    epilogue reads them: that one's tiles hold a row of each in turn, by its tensor map of the
    values, and the scales come in the tiles' order.
    """
    in_turn = weight.scales.view(2, -1).T.reshape(-1)
    return replace(weight, scales_in_turn=in_turn)


def quantize_rows(x: Tensor) -> Fp8Rows:
    """x [R, K] in FP8, in plain torch: for weights, and the reference of the kernels.

    A row that holds a NaN or an infinity holds NaN afterwards, so that it stays noticed.
    """
    wide = x.float()
    largest = wide.abs().amax(dim=1).clamp_min(SMALLEST_ROW)
    # Not LARGEST / largest: torch multiplies by the reciprocal, which rounds twice.
    factors = torch.full_like(largest, LARGEST) / largest
    values = (wide * factors[:, None]).clamp(-LARGEST, LARGEST)
    return Fp8Rows(values.to(DTYPE), largest / LARGEST)


def empty_rows(num_rows: int, width: int, device: torch.device) -> Fp8Rows:
    """Memory for a matrix, not written to yet."""
    values = torch.empty(num_rows, width, dtype=DTYPE, device=device)
    return Fp8Rows(values, torch.empty(num_rows, dtype=torch.float32, device=device))
