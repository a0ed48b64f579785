"""What runs on pooled rows, once a sequence, in fp32: linear layers and the L2 norm.

So fp32 costs nothing that shows, and a row is rounded only when it is sent. F.linear in fp32 does
not use TF32 unless a process asks for it. With `fixed` a row's bits do not depend on how many rows
there are; that is for GPUs, on a CPU rows are then computed one at a time.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from hotbed.rose.layers.fused import kernels_for

NORM_EPS = 1e-12
"""Below any real row's norm, and far above the smallest fp32: an all-zero row stays zero."""


def linear(rows_SI: Tensor, weight: Tensor, bias: Tensor | None, *, fixed: bool) -> Tensor:
    """Fp32 rows [S, in] times weight [out, in] + bias [out]: [S, out]."""
    kernels = kernels_for(rows_SI) if fixed else None
    if kernels is None:
        return F.linear(rows_SI, weight, bias)
    y: Tensor = kernels.fixed_gemm(rows_SI.contiguous(), weight, bias)
    return y


def unit_rows(rows_SD: Tensor, *, fixed: bool) -> Tensor:
    """Fp32 rows [S, D] divided by their L2 norms."""
    kernels = kernels_for(rows_SD) if fixed else None
    if kernels is None:
        return F.normalize(rows_SD, dim=-1, eps=NORM_EPS)
    y: Tensor = kernels.unit_rows(rows_SD.contiguous())
    return y
