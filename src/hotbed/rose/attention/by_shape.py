"""The measured choice between backends, step by step: what `auto` takes on a GPU.

    all of one length, 256 to 1,024      cuDNN through SDPA, on [n, L] views without a copy
    many texts of up to 64 tokens        torch's varlen
    everything else                      FlashAttention 4, or varlen where there is none

us a call, H200, 2026-11-30 (bench/attention.py), FlashAttention 4 / cuDNN / varlen:
    full    hd128 16/8   8 x 512 44 / 35 / 60, 16 x 512 84 / 65 / 115, 1 x 4096 206 / 215 / 421
            hd64 16/16   8 x 512 31 / 26 / 37, 16 x 512 64 / 49 / 74, 1 x 4096 142 / 147 / 225
    causal  hd128 16/8   16 x 512 69 / 54 / 123, 1 x 4096 113 / 151 / 313
    full    256 x 32     hd128 139 / 95 / 100, hd64 213 / 72 / 104, hd32 147 / 55 / 63

The choice is made when a step is planned, from what its configuration is for (`hotbed.rose.buckets`
sets such steps apart), so that a captured graph holds for every step that replays it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hotbed.rose.attention.backend import AttentionBackend, AttentionSpec, Capability
from hotbed.rose.attention.sdpa import SdpaBackend
from hotbed.rose.attention.varlen import VarlenBackend
from hotbed.rose.batch import PackedBatch

# Lengths of uniform batches that cuDNN is the fastest for, by whether the mask is causal.
DENSE_LENGTHS: Mapping[bool, range] = {False: range(256, 1025), True: range(256, 1025)}
# So many sequences, each of so few tokens: FlashAttention 4 then looks for the sequence of a block
# longer than it computes.
MIN_SHORT_SLOTS = 128
MAX_SHORT_LENGTH = 256


@dataclass(frozen=True, slots=True)
class ShapePlan:
    """The backend that was chosen, and its own plan."""

    backend: AttentionBackend
    plan: Any


class ByShapeBackend:
    """Takes for each step the backend that is the fastest.

    Args:
        ragged: for steps that are neither uniform nor of many short texts; the others run wherever
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
            if group.length in DENSE_LENGTHS[spec.causal]:
                return self._dense
        # The last slot holds the pad rows.
        num_slots = len(batch.cu_seqlens) - 2
        if num_slots >= MIN_SHORT_SLOTS and batch.max_seqlen <= MAX_SHORT_LENGTH:
            return self._short
        return self._ragged
