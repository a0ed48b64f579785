"""What the plain references are written in: torch, fp32, one text at a time, nothing fused.

Legend: T tokens, N heads, K kv heads, H head dim, D hidden.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Tensor]


def attend(q: Tensor, k: Tensor, v: Tensor, scores: Tensor | None = None) -> Tensor:
    """softmax(q k^T / sqrt(H) + scores) v.

    Args:
        q: [T, N, H].
        k: [T, K, H], each for N / K heads of q.
        v: [T, K, H].
        scores: added, [T, T] or [N, T, T]; None: nothing.

    Returns:
        [T, N H].
    """
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.transpose(0, 1) for x in (q, *(x.repeat_interleave(group, 1) for x in (k, v))))
    products = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
    if scores is not None:
        products = products + scores
    attended: Tensor = (products.softmax(-1) @ v).transpose(0, 1).flatten(1)
    return attended


def visible(num_tokens: int, device: torch.device, *, causal: bool, window: int | None) -> Tensor:
    """[T, T]: 0 where the token of a row sees the one of a column, else minus infinity."""
    ahead = distances(num_tokens, device)
    hidden = ahead > 0 if causal else torch.zeros_like(ahead, dtype=torch.bool)
    if window is not None:
        hidden = hidden | (ahead.abs() > window)
    return torch.zeros_like(ahead, dtype=torch.float32).masked_fill(hidden, float("-inf"))


def distances(num_tokens: int, device: torch.device) -> Tensor:
    """[T, T]: how far the token of a column stands behind that of a row."""
    places = torch.arange(num_tokens, device=device)
    return places[None, :] - places[:, None]


def rotate(x: Tensor, theta: float) -> Tensor:
    """Rotary embedding of x [T, N, H], half-split."""
    num_tokens, _, head_dim = x.shape
    exponent = torch.arange(0, head_dim, 2, device=x.device).float() / head_dim
    places = torch.arange(num_tokens, device=x.device).float()
    angles = torch.outer(places, theta**-exponent)[:, None]
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Over the last dimension."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def layer_norm(x: Tensor, w: Weights, name: str, eps: float) -> Tensor:
    """By the parameters ``name.weight`` and ``name.bias``."""
    return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], eps)


def linear(x: Tensor, w: Weights, name: str) -> Tensor:
    """By ``name.weight`` and, if there is one, ``name.bias``."""
    return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))
