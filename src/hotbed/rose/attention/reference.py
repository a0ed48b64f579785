"""Plain attention in fp64, sequence by sequence: what every backend is measured against.

out[i] = sum_j p[i, j] v[j],   p[i] = softmax_j(q[i] . k[j] * scale),   j visible from i
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from hotbed.rose.attention.backend import AttentionSpec

# Largest error of a backend, relative to sum_j p[i, j] |v[j]|, that rounding explains: p and the
# result are each rounded once (unit roundoff u), all else is fp32; a tenth for that.
_BOUND = {torch.bfloat16: 1.1 * 2 * 2.0**-8, torch.float16: 1.1 * 2 * 2.0**-11}


def reference(
    q_TNH: Tensor, k_TKH: Tensor, v_TKH: Tensor, offsets: Sequence[int], spec: AttentionSpec
) -> Tensor:
    """Attention within each sequence, fp64 [offsets[-1], N, H]; rows past the last are left out."""
    out = torch.zeros(offsets[-1], *q_TNH.shape[1:], dtype=torch.float64, device=q_TNH.device)
    for start, stop in itertools.pairwise(offsets):
        if start == stop:
            continue
        q, k, v = (x[start:stop].double().transpose(0, 1) for x in (q_TNH, k_TKH, v_TKH))
        k, v = (x.repeat_interleave(spec.group, dim=0) for x in (k, v))
        scores = q @ k.transpose(1, 2) * spec.scale
        position = torch.arange(stop - start, device=q.device)
        distance = position[None, :] - position[:, None]
        hidden = torch.zeros_like(distance, dtype=torch.bool)
        if spec.causal:
            hidden |= distance > 0
        if spec.window is not None:
            hidden |= distance.abs() > spec.window
        weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
        out[start:stop] = (weights @ v).transpose(0, 1)
    return out


def worst_error(
    got_TNH: Tensor,
    qkv: tuple[Tensor, Tensor, Tensor],
    offsets: Sequence[int],
    spec: AttentionSpec,
) -> float:
    """Largest error of `got_TNH` (bfloat16 or float16), as a share of what rounding explains.

    Up to 1 is right; NaN stays NaN. Rows past the last offset are left out.
    """
    q, k, v = qkv
    got = got_TNH[: offsets[-1]]
    error = (got.double() - reference(q, k, v, offsets, spec)).abs()
    explained = _BOUND[got.dtype] * reference(q, k, v.abs(), offsets, spec)
    return float((error / explained.clamp_min(1e-30)).max())  # a v of 0 gives 0 for both
