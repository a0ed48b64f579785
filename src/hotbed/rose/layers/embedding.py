"""BERT's embedding: LayerNorm(word + position)           (Devlin et al. 2018, arXiv 1810.04805)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from hotbed.rose.layers.fused import current_mode, kernels_for
from hotbed.rose.layers.norm import LayerNorm


class NormedEmbedding:
    """Word and position embedding with the norm behind them.

    Args:
        word: [vocabulary, D].
        position: [positions, D] with the segment's row added; with two segments [2 positions, D].
        norm_weight: [D].
        norm_bias: [D].
        eps: of the norm.
    """

    def __init__(
        self,
        word: Tensor,
        position: Tensor,
        *,
        norm_weight: Tensor,
        norm_bias: Tensor,
        eps: float,
    ) -> None:
        self._word, self._position = word, position
        self._norm_weight, self._norm_bias, self._eps = norm_weight, norm_bias, eps
        self._norm = LayerNorm(norm_weight, norm_bias, eps=eps)
        self._kernels = kernels_for(word)
        self._fixed = current_mode().invariant

    def __call__(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """int32 ids and positions [T] to [T, D]."""
        if self._kernels is not None:
            embedded: Tensor = self._kernels.embed_norm(
                token_ids,
                positions,
                self._word,
                self._position,
                self._norm_weight,
                self._norm_bias,
                eps=self._eps,
                fixed=self._fixed,
            )
            return embedded
        embedded = F.embedding(token_ids, self._word)
        embedded += F.embedding(positions, self._position)
        return self._norm(embedded)
