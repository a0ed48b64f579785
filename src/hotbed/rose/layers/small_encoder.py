"""All layers of a BERT encoder for steps of few tokens on Hopper: five kernels a layer.

The counterpart of `small_decoder` for layers with post-norms: the residual stream between the
kernels is what goes into a LayerNorm, and each kernel that reads it applies the norm.

Legend: T tokens, D hidden, N heads, H head dim, F mlp dim.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from hotbed.rose.attention.backend import AttentionSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.short_encoder import ShortLayer
from hotbed.rose.layers.small_steps import has_small_steps, is_small

_WIDTH_MULTIPLE = 128
Pair = tuple[Tensor, Tensor]


class SmallEncoder:
    """The layers for steps of few tokens; made by `small_encoder`."""

    def __init__(
        self,
        layers: Sequence[ShortLayer],
        embedding_norm: Pair,
        spec: AttentionSpec,
        *,
        eps: float,
        max_tokens: int,
    ) -> None:
        # Where the layers are built there is a card; nowhere else is this imported.
        self._ops: Any = importlib.import_module("hotbed.rose.kernels.hopper.small_layers")
        kernels = importlib.import_module("hotbed.rose.kernels.launchers")
        self._attend: Any = kernels.short_attention
        self._layer_norm: Any = kernels.layer_norm
        self._spec, self._eps, self._max_tokens = spec, eps, max_tokens
        self._norms = [embedding_norm]
        self._layers = []
        gemm, deferred = self._ops.SmallGemm, self._ops.deferred_layer_norm
        for layer in layers:
            qkv = gemm(layer.qkv[0], "project"), deferred(*layer.qkv, *self._norms[-1])
            out = gemm(layer.out[0], "postnorm"), layer.out[1]
            up = gemm(layer.up[0], "gelu"), deferred(*layer.up, *layer.attention_norm)
            down = gemm(layer.down[0], "postnorm"), layer.down[1]
            self._layers.append((qkv, out, up, down))
            self._norms += [layer.attention_norm, layer.mlp_norm]

    def takes(self, batch: PackedBatch) -> bool:
        """Whether a step is small enough."""
        return is_small(batch, self._max_tokens)

    def __call__(self, batch: PackedBatch, word: Tensor, position: Tensor) -> Tensor:
        """A step's ids and positions, through both embedding tables and all layers.

        Returns:
            states [T, D], behind the last norm.
        """
        ops, spec, eps = self._ops, self._spec, self._eps
        stream = ops.Stream.empty(len(batch.token_ids), word.shape[1], word.device)
        norms = iter(self._norms)
        norm = next(norms)
        second = position, batch.positions
        ops.embed(word, batch.token_ids, stream, next_weight=norm[0], second=second)
        for qkv, out, up, down in self._layers:
            heads = self._project(qkv, stream)
            attended = self._attend(
                heads,
                batch.cu_seqlens,
                num_heads=spec.num_heads,
                num_kv_heads=spec.num_kv_heads,
                scale=spec.scale,
            )
            norm = self._add_(out, attended, stream, norm, next(norms))
            norm = self._add_(down, self._project(up, stream), stream, norm, next(norms))
        states: Tensor = self._layer_norm(stream.rows, *norm, eps=eps)
        return states

    def _project(self, layer: tuple[Any, Pair], stream: Any) -> Tensor:
        gemm, (mean_part, shift) = layer
        projected: Tensor = self._ops.project(
            gemm, stream, mean_part=mean_part, shift=shift, eps=self._eps
        )
        return projected

    def _add_(
        self, layer: tuple[Any, Tensor], x: Tensor, stream: Any, norm: Pair, next_norm: Pair
    ) -> Pair:
        """Add x through `layer` to the normed stream; gives the norm that comes next."""
        gemm, bias = layer
        self._ops.postnorm_(
            gemm,
            x,
            stream,
            bias=bias,
            norm_weight=norm[0],
            norm_bias=norm[1],
            next_weight=next_norm[0],
            eps=self._eps,
        )
        return next_norm


def small_encoder(
    layers: Sequence[ShortLayer], embedding_norm: Pair, spec: AttentionSpec, *, eps: float
) -> SmallEncoder | None:
    """The path of small steps, or None where the card, the dtype or the shape has none.

    Args:
        layers: their weights, which are not copied; the activation is exact GELU.
        embedding_norm: weight and bias of the norm behind the embedding.
        spec: of the attention: bidirectional, all of the sequence.
        eps: of the norms.
    """
    weight = layers[0].qkv[0]
    if not has_small_steps(weight):
        return None
    widths = (*weight.shape, *layers[0].up[0].shape)
    if (
        spec.window is not None
        or spec.causal
        or spec.head_dim & (spec.head_dim - 1)
        or any(width % _WIDTH_MULTIPLE for width in widths)
    ):
        return None
    # H200, 2026-12-01, bge-m3's shape, device ms against the usual path: 0.47 / 0.75 at 32 tokens,
    # 0.62 / 0.81 at 128, 0.78 / 0.88 at 192, 0.84 / 0.95 at 256.
    gemm = importlib.import_module("hotbed.rose.kernels.hopper.small_gemm")
    return SmallEncoder(layers, embedding_norm, spec, eps=eps, max_tokens=gemm.MAX_TOKENS)
