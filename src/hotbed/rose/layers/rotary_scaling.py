"""Scaled rotary frequencies: f_i = theta^(-2i/H) for pair i of a head of H, made smaller.

    linear    f_i / s
    dynamic   theta' = theta (s L / L0 - (s - 1))^(H / (H - 2)) for a text of L > L0 tokens (NTK)
    llama3    f_i of waves that turn more than high_freq_factor times in L0 tokens; f_i / s of those
              that turn less than low_freq_factor times; between them blended by the turns
    yarn      the same blended over i, from the pair that turns beta_fast times in L0 tokens to the
              one that turns beta_slow times; cos and sin times a magnitude

s is the factor, L0 the trained positions. Sources: Chen et al. 2023, arXiv 2306.15595 (linear);
Peng et al. 2023, arXiv 2309.00071 (yarn, and dynamic in its appendix); llama3 is Llama 3.1's own.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hotbed.core.rope import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    RopeScaling,
    YarnScaling,
)


def plain_frequencies(head_dim: int, theta: float, device: torch.device) -> Tensor:
    """f_i, fp32 [H/2]."""
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
    return 1.0 / theta**exponent


def fixed_frequencies(
    head_dim: int, theta: float, scaling: RopeScaling | None, device: torch.device
) -> Tensor:
    """The frequencies of texts of any length, or with `DynamicScaling` of those up to L0; [H/2]."""
    plain = plain_frequencies(head_dim, theta, device)
    if isinstance(scaling, LinearScaling):
        return plain / scaling.factor
    if isinstance(scaling, Llama3Scaling):
        return _blend(plain, scaling.factor, _llama3_share(plain, scaling))
    if isinstance(scaling, YarnScaling):
        return _blend(plain, scaling.factor, _yarn_share(head_dim, theta, scaling, device))
    return plain


def dynamic_frequencies(
    head_dim: int, theta: float, scaling: DynamicScaling, lengths: Tensor
) -> Tensor:
    """The frequencies of texts of these lengths.

    Args:
        head_dim: H.
        theta: the base in training.
        scaling: its factor and L0.
        lengths: tokens, int32 [S]; below L0 they count as L0.

    Returns:
        fp32 [S, H/2].
    """
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float32, device=lengths.device) / head_dim
    stretch = (
        lengths.clamp_min(scaling.original_max_position_embeddings).float()
        / scaling.original_max_position_embeddings
    )
    growth = scaling.factor * stretch - (scaling.factor - 1)
    bases = theta * growth ** (head_dim / (head_dim - 2))
    return 1.0 / bases[:, None] ** exponent


def _blend(plain: Tensor, factor: float, share: Tensor) -> Tensor:
    """`share` of each frequency as it was, the rest divided by the factor."""
    return plain * share + plain / factor * (1 - share)


def _llama3_share(plain: Tensor, scaling: Llama3Scaling) -> Tensor:
    turns = scaling.original_max_position_embeddings * plain / (2 * math.pi)
    width = scaling.high_freq_factor - scaling.low_freq_factor
    return ((turns - scaling.low_freq_factor) / width).clamp(0, 1)


def _yarn_share(head_dim: int, theta: float, scaling: YarnScaling, device: torch.device) -> Tensor:
    def dimension(turns: float) -> float:
        """Where a wave turns so often in L0 tokens, as a pair's number i, not rounded."""
        length = scaling.original_max_position_embeddings / (turns * 2 * math.pi)
        return head_dim * math.log(length) / (2 * math.log(theta))

    low, high = dimension(scaling.beta_fast), dimension(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001  # a step; as in the authors' code
    pairs = torch.arange(head_dim // 2, dtype=torch.float32, device=device)
    return 1 - ((pairs - low) / (high - low)).clamp(0, 1)
