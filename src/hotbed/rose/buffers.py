"""Memory of GPU steps that outlives them: static inputs a configuration, rings of pinned staging.

A graph reads its inputs at fixed addresses, so each configuration has its own device buffer. The
host writes a step's inputs into a pinned buffer of a ring, one asynchronous copy takes them over,
and the event behind the copy says when the pinned buffer may be written again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotbed.core.ragged import RaggedBatch
from hotbed.rose.batch import PackedBatch
from hotbed.rose.buckets import StepConfig

_RING = 4


class InputBuffers:
    """Static device inputs of one configuration: ids [T], positions [T], offsets [slots + 2].

    With spans also their offsets, [2 spans + 2]; see `PackedBatch.row_offsets`.
    """

    def __init__(self, config: StepConfig, device: torch.device) -> None:
        num_tokens, num_slots, max_seqlen, num_spans = config
        self._config = config
        num_row_offsets = 2 * num_spans + 2 if num_spans else 0
        self.num_ints = 2 * num_tokens + num_slots + 2 + num_row_offsets
        self.device_ints = torch.zeros(self.num_ints, dtype=torch.int32, device=device)
        token_ids, positions, cu_seqlens, row_offsets = self.device_ints.split(
            (num_tokens, num_tokens, num_slots + 2, num_row_offsets)
        )
        # num_tokens is the padded number: on a GPU the pad slot is a sequence like the others.
        self.batch = PackedBatch(
            token_ids=token_ids,
            positions=positions,
            num_tokens=num_tokens,
            cu_seqlens=cu_seqlens,
            max_seqlen=max_seqlen,
            groups=(),
            restore=np.zeros(0, dtype=np.int64),
            row_offsets=row_offsets if num_spans else None,
        )

    def fill(self, host_ints: NDArray[np.int32], batch: RaggedBatch) -> None:
        """Write a ragged batch's inputs, pad slot included, into host memory of `num_ints`."""
        padded, num_slots, _, num_spans = self._config
        num_tokens, num_sequences = batch.num_tokens, batch.num_sequences
        cu_seqlens = batch.cu_seqlens
        host_ints[:num_tokens] = batch.token_ids
        host_ints[num_tokens:padded] = 0
        positions = host_ints[padded : padded + num_tokens]
        np.subtract(
            np.arange(num_tokens, dtype=np.int32),
            np.repeat(cu_seqlens[:-1], batch.lengths),
            out=positions,
        )
        # All pad rows at position 0, which every model has.
        host_ints[padded + num_tokens : 2 * padded] = 0
        offsets = host_ints[2 * padded : 2 * padded + num_slots + 2]
        offsets[: num_sequences + 1] = cu_seqlens
        offsets[num_sequences + 1 : -1] = num_tokens
        offsets[-1] = padded
        if num_spans:
            row_offsets = host_ints[2 * padded + num_slots + 2 :]
            bounds = batch.span_offsets().ravel()
            row_offsets[0] = 0
            row_offsets[1 : len(bounds) + 1] = bounds
            row_offsets[len(bounds) + 1 : -1] = bounds[-1]
            row_offsets[-1] = padded


class PinnedRing:
    """Pinned host buffers used in turn; each waits for its last copy before it is used again."""

    def __init__(self) -> None:
        self._buffers: list[Tensor] = [torch.empty(0, dtype=torch.uint8)] * _RING
        self._events: list[torch.cuda.Event | None] = [None] * _RING
        self._next = 0

    def take(self, num_bytes: int) -> tuple[Tensor, torch.cuda.Event]:
        """(uint8 buffer of at least `num_bytes`, event to record behind the copy that uses it)."""
        index = self._next
        self._next = (index + 1) % _RING
        event = self._events[index]
        if event is None:
            event = self._events[index] = torch.cuda.Event()
        else:
            event.synchronize()
        if len(self._buffers[index]) < num_bytes:
            size = 1 << max(16, (num_bytes - 1).bit_length())
            self._buffers[index] = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        return self._buffers[index], event


def total_bytes(tensors: Sequence[Tensor]) -> int:
    """Bytes of all tensors, each rounded up to 16, as `hotbed.rose.cuda` lays them out."""
    return sum(-(-tensor.nbytes // 16) * 16 for tensor in tensors)
