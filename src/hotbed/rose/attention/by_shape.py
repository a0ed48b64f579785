"""The measured choice between backends, step by step: what `auto` takes on a GPU.

    all of one length, 128 to 1,024                    cuDNN through SDPA, on [n, L] views
    of 4,096 tokens or more, no text above 128 tokens,
        or 256 up to head dim 64                       torch's varlen
    everything else                                    FlashAttention 4, or varlen without it

us a call, H200, 2026-11-30 (bench/attention.py), FlashAttention 4 / cuDNN / varlen:
    full    hd128 16/8    16 x 512 83 / 65 / 114, 32 x 256 64 / 41 / 69, 64 x 128 58 / 32 / 49
                          128 x 64 72 / 51 / 59, 4 x 2048 225 / 220 / 424
            hd64 16/16    16 x 512 63 / 48 / 73, 32 x 256 61 / 31 / 48, 64 x 128 56 / 23 / 36
                          128 x 64 95 / 39 / 57, 4 x 2048 157 / 151 / 233
            hd32 12/12    16 x 512 42 / 37 / 42, 32 x 256 37 / 23 / 27, 64 x 128 35 / 17 / 20
                          128 x 64 63 / 30 / 35, 4 x 2048 87 / 115 / 134
    causal  hd128 16/8    16 x 512 68 / 54 / 119, 8 x 1024 90 / 85 / 177, 4 x 2048 135 / 146 / 283
            hd64 16/16    32 x 256 65 / 29 / 55, 128 x 64 118 / 44 / 59

cuDNN leads at 64 and 32 tokens too, by 13 to 30 %: steps of one such length are not worth as many
graphs as there are counts of them. With fewer tokens, 64 x 32, FlashAttention 4 takes 20 us for
varlen's 27 at hd128.

The choice is made when a step is planned, from what its configuration is for (`hotbed.rose.buckets`
sets such steps apart), so that a captured graph holds for every step that replays it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec, Capability
from hotbed.rose.attention.sdpa import SdpaBackend
from hotbed.rose.attention.varlen import VarlenBackend
from hotbed.rose.batch import PackedBatch

DENSE_LENGTHS = range(128, 1025)
"""Lengths of uniform batches that cuDNN is the fastest for."""
MIN_SHORT_TOKENS = 4096
"""Of short texts: with fewer FlashAttention 4 is faster."""


def max_short_length(head_dim: int) -> int:
    """Up to which varlen is faster: FlashAttention 4 pays for each text, at small heads more than
    for its tokens.
    """
    return 256 if head_dim <= 64 else 128


@dataclass(frozen=True, slots=True)
class ShapePlan:
    """The backend that was chosen, and its own plan."""

    backend: AttentionBackend
    plan: Any


class ByShapeBackend:
    """Takes for each step the backend that is the fastest.

    Args:
        ragged: for steps that are neither uniform nor of short texts; the others run wherever
            it runs.
    """

    supports_capture = True
    tells_shapes_apart = True

    def __init__(self, ragged: AttentionBackend) -> None:
        self._ragged, self._short, self._dense = ragged, VarlenBackend(), SdpaBackend()
        self.name = f"{ragged.name} by shape"
        self.grid_follows_max_seqlen = ragged.grid_follows_max_seqlen
        self.isolates_nan = ragged.isolates_nan

    def supports(self, spec: AttentionSpec, device: torch.device, dtype: torch.dtype) -> str | None:
        """See `AttentionBackend.supports`."""
        return self._ragged.supports(spec, device, dtype)

    def describe(self) -> Capability:
        """See `AttentionBackend.describe`."""
        return self._ragged.describe()

    def prepare(self, spec: AttentionSpec, device: torch.device) -> None:
        """See `AttentionBackend.prepare`."""
        for backend in (self._ragged, self._short, self._dense):
            backend.prepare(spec, device)

    def plan(self, batch: PackedBatch, spec: AttentionSpec) -> ShapePlan:
        """See `AttentionBackend.plan`."""
        backend = self._choose(batch, spec)
        return ShapePlan(backend, backend.plan(batch, spec))

    def run(self, q_TNH: Tensor, k_TKH: Tensor, v_TKH: Tensor, plan: ShapePlan) -> Tensor:
        """See `AttentionBackend.run`."""
        return plan.backend.run(q_TNH, k_TKH, v_TKH, plan.plan)

    def _choose(self, batch: PackedBatch, spec: AttentionSpec) -> AttentionBackend:
        if batch.groups and spec.window is None:
            (group,) = batch.groups
            if group.length in DENSE_LENGTHS:
                return self._dense
        enough = len(batch.token_ids) >= MIN_SHORT_TOKENS
        if enough and batch.max_seqlen <= max_short_length(spec.head_dim):
            return self._short
        return self._ragged
