"""Heads that make weights of token ids out of token states.

bge-m3:  w_t = max(0, v h_t + b), the weight of token t's own id      (arXiv 2402.03216, 2.2)
SPLADE:  w_j = max over the tokens of log(1 + max(0, logit_tj)), j any id of the vocabulary
         (arXiv 2109.10086; with two logarithms: arXiv 2504.14839)

logit_t = E norm(act(W h_t + c)) + d is a masked language model's, E its embedding or a matrix of
its own. The logarithm rises, so it is taken of the largest logit: once an id and not once a token.
Legend: T tokens, S sequences, D hidden, V ids.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.rose.batch import token_bucket
from hotbed.rose.layers.linear import Linear

# Logits that are held at a time, instead of all T x V of them: 8,192 tokens of a vocabulary of
# 250,000 would take 4 GB in BF16.
_MAX_LOGITS_CPU = 1 << 24
_MAX_LOGITS_GPU = 1 << 27


class TokenWeights:
    """bge-m3's head: weight fp32 [1, D], bias fp32 [1]."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, states_TD: Tensor) -> tuple[Tensor, Tensor]:
        """States [T, D] to weights fp32 [T], and bool [T]: which were finite before the ReLU."""
        weights_T = F.linear(states_TD.float(), self._weight, self._bias)[:, 0]
        return F.relu(weights_T), torch.isfinite(weights_T)


class MlmHead:
    """A masked language model's head with SPLADE's maximum over the tokens.

    Args:
        dense: D to D, with its activation.
        norm: weight [D], bias [D] or None, and eps of the LayerNorm behind it.
        decoder: D to V.
        num_logs: how often the logarithm is taken.
    """

    def __init__(
        self,
        dense: Linear,
        norm: tuple[Tensor, Tensor | None, float],
        decoder: Linear,
        *,
        num_logs: int,
    ) -> None:
        self._dense, self._norm, self._decoder = dense, norm, decoder
        self._num_logs = num_logs

    def __call__(self, states_TD: Tensor, cu_seqlens: Tensor, offsets: Sequence[int]) -> Tensor:
        """States [T, D] of S sequences to weights fp32 [S, V], NaN or infinite where logits are.

        Args:
            states_TD: the sequences' tokens end to end, at least one each.
            cu_seqlens: int32 or int64 [S + 1], where they begin, and T; on the states' device.
            offsets: the same on the host.
        """
        num_ids = self._decoder.out_features
        largest = states_TD.new_zeros((len(offsets) - 1, num_ids), dtype=torch.float32)
        on_gpu = states_TD.is_cuda
        step = max(16, (_MAX_LOGITS_GPU if on_gpu else _MAX_LOGITS_CPU) // num_ids)
        for start in range(0, len(states_TD), step):
            logits_TV = self._logits(states_TD[start : start + step])
            if on_gpu:
                keep_largest_by_segments(largest, logits_TV, cu_seqlens - start)
            else:
                keep_largest(largest, logits_TV, [offset - start for offset in offsets])
        for _ in range(self._num_logs):
            largest = largest.log1p_()
        return largest

    def _logits(self, states_TD: Tensor) -> Tensor:
        num_tokens = len(states_TD)
        if not states_TD.is_cuda:
            # oneDNN builds a kernel for each number of rows, see `token_bucket`.
            states_TD = F.pad(states_TD, (0, 0, 0, token_bucket(num_tokens) - num_tokens))
        weight, bias, eps = self._norm
        x_TD = F.layer_norm(self._dense(states_TD), weight.shape, weight, bias, eps)
        return self._decoder(x_TD)[:num_tokens]


def keep_largest_by_segments(largest_SV: Tensor, logits_TV: Tensor, offsets: Tensor) -> None:
    """The same as `keep_largest` with offsets [S + 1] on a GPU; the host does not wait."""
    within = offsets.clamp(0, len(logits_TV)).long()
    # unsafe: no look at the offsets on the host.
    made = torch.segment_reduce(logits_TV, "max", offsets=within, axis=0, initial=0.0, unsafe=True)
    torch.maximum(largest_SV, made.float(), out=largest_SV)


def keep_largest(largest_SV: Tensor, logits_TV: Tensor, offsets: Sequence[int]) -> None:
    """Raise `largest` to the largest logit of each sequence's tokens that are among these.

    On a CPU: torch.segment_reduce takes seven times as long there (2 threads, 2026-11-30).
    """
    num_tokens = len(logits_TV)
    for index, row_V in enumerate(largest_SV):
        start = min(max(offsets[index], 0), num_tokens)
        stop = min(max(offsets[index + 1], 0), num_tokens)
        if start < stop:
            torch.maximum(row_V, logits_TV[start:stop].amax(dim=0), out=row_V)
