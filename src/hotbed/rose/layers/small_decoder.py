"""All layers of a Qwen3 decoder for steps of few tokens on Hopper: five kernels a layer.

At up to a few hundred tokens a layer is bound by reading its weights once and by the gaps between
kernels, not by arithmetic. `kernels/hopper/small_gemm.cu` says how its kernels deal with both.

Legend: T tokens, D hidden, N query heads, K key/value heads, H head dim, F mlp dim.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from hotbed.rose.attention.backend import AttentionSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.rotary import Rotation
from hotbed.rose.layers.small_steps import has_small_steps, is_small

_K_TILE = 64
_ROWS_A_BLOCK, _MULTIPROCESSORS, _MAX_TOKENS_OF_MORE = 128, 132, 64


@dataclass(frozen=True, slots=True)
class SmallLayer:
    """Weights of one layer, as the usual path has them; nothing is copied.

    Attributes:
        qkv: [(N + 2 K) H, D].
        out: [D, N H].
        gate_up: [2 F, D], gate first.
        down: [D, F].
        attention_norm: [D], in front of qkv.
        mlp_norm: [D], in front of gate_up.
        q_norm: [H].
        k_norm: [H].
    """

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    attention_norm: Tensor
    mlp_norm: Tensor
    q_norm: Tensor
    k_norm: Tensor


class SmallDecoder:
    """The layers for steps of at most `max_tokens` tokens; made by `small_decoder`."""

    def __init__(
        self,
        layers: Sequence[SmallLayer],
        final_norm: Tensor,
        spec: AttentionSpec,
        *,
        eps: float,
        max_tokens: int,
    ) -> None:
        # Where the layers are built there is a card; nowhere else is this imported.
        self._ops: Any = importlib.import_module("hotbed.rose.kernels.hopper.small_layers")
        self._attend: Any = importlib.import_module(
            "hotbed.rose.kernels.short_attention"
        ).short_attention
        self._spec, self._eps = spec, eps
        self.max_tokens = max_tokens
        self._layers = list(layers)
        # What a layer's end scales the stream with: the weight of the norm that comes next.
        self._next_norms = [layer.attention_norm for layer in layers[1:]] + [final_norm]
        gemm = self._ops.SmallGemm
        self._gemms = [
            (
                gemm(layer.qkv, "qkv"),
                gemm(layer.out, "residual"),
                gemm(layer.gate_up, "swiglu"),
                gemm(layer.down, "residual"),
            )
            for layer in layers
        ]

    def takes(self, batch: PackedBatch) -> bool:
        """Whether a step is small enough."""
        return is_small(batch, self.max_tokens)

    def __call__(self, batch: PackedBatch, table: Tensor, rotary: Rotation) -> Tensor:
        """A step's ids, through embedding `table` [vocabulary, D] and layers, before the last norm.

        Returns:
            the residual stream [T, D].
        """
        ops, spec = self._ops, self._spec
        stream = ops.Stream.empty(len(batch.token_ids), table.shape[1], table.device)
        ops.embed(table, batch.token_ids, stream, next_weight=self._layers[0].attention_norm)
        for layer, (qkv, out, gate_up, down), next_norm in zip(
            self._layers, self._gemms, self._next_norms, strict=True
        ):
            heads = ops.qkv(
                qkv,
                stream,
                eps=self._eps,
                q_weight=layer.q_norm,
                k_weight=layer.k_norm,
                head_eps=self._eps,
                cos=rotary.cos,
                sin=rotary.sin,
                positions=rotary.positions,
                num_heads=spec.num_heads,
                num_kv_heads=spec.num_kv_heads,
            )
            attended = self._attend(
                heads,
                batch.cu_seqlens,
                num_heads=spec.num_heads,
                num_kv_heads=spec.num_kv_heads,
                scale=spec.scale,
                causal=spec.causal,
            )
            ops.add_(out, attended, stream, next_weight=layer.mlp_norm)
            activated = ops.swiglu(gate_up, stream, eps=self._eps)
            ops.add_(down, activated, stream, next_weight=next_norm)
        rows: Tensor = stream.rows
        return rows


def small_decoder(
    layers: Sequence[SmallLayer], final_norm: Tensor, spec: AttentionSpec, *, eps: float
) -> SmallDecoder | None:
    """The path of small steps, or None where the card, the dtype or the shape has none."""
    first = layers[0]
    if not has_small_steps(first.qkv):
        return None
    gemm = importlib.import_module("hotbed.rose.kernels.hopper.small_gemm")
    widths = (*first.qkv.shape, *first.out.shape, *first.down.shape)
    if (
        spec.window is not None
        or spec.head_dim != gemm.HEAD_DIM
        or any(width % _K_TILE for width in widths)
    ):
        return None
    # One wave of blocks for gate and up at MAX_TOKENS, or the GEMMs of cuBLAS win earlier. H200,
    # 2026-11-30, device ms against the usual path: 0.6B shape 0.85 / 1.18 at 128 tokens, 1.17 /
    # 1.33 at 256; 4B shape 2.58 / 3.18 at 64, 3.99 / 3.32 at 128.
    is_one_wave = 2 * len(first.gate_up) // _ROWS_A_BLOCK <= _MULTIPROCESSORS
    max_tokens = gemm.MAX_TOKENS if is_one_wave else _MAX_TOKENS_OF_MORE
    return SmallDecoder(layers, final_norm, spec, eps=eps, max_tokens=max_tokens)
