"""Static device inputs of GPU steps: a graph reads them at fixed addresses, so each configuration
has its own. The host fills pinned memory (`staging`), one asynchronous copy takes it over.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from hotbed.core.ragged import RaggedBatch
from hotbed.rose.batch import LengthGroup, PackedBatch, write_positions
from hotbed.rose.buckets import StepConfig


class InputBuffers:
    """Static device inputs of one configuration: ids [T], positions [T], offsets [slots + 2].

    With spans also their offsets, [2 spans + 2]; see `PackedBatch.row_offsets`.
    """

    def __init__(self, config: StepConfig, device: torch.device, *, pair_offset: int = 0) -> None:
        num_tokens, num_slots, max_seqlen, uniform, num_spans, _ = config
        self._config = config
        self.keeps_states = config.keeps_states
        self._pair_offset = pair_offset
        num_row_offsets = 2 * num_spans + 2 if num_spans else 0
        self.num_ints = 2 * num_tokens + num_slots + 2 + num_row_offsets
        # A normal tensor whatever the caller's mode: it is written to outside inference mode.
        with torch.inference_mode(False):
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
            groups=(LengthGroup(0, num_slots, max_seqlen),) if uniform else (),
            restore=np.zeros(0, dtype=np.int64),
            row_offsets=row_offsets if num_spans else None,
        )

    def fill(self, host_ints: NDArray[np.int32], batch: RaggedBatch) -> None:
        """Write a ragged batch's inputs, pad slot included, into `num_ints` of host memory."""
        padded, num_slots = self._config.num_tokens, self._config.num_slots
        num_spans = self._config.num_spans
        num_tokens, num_sequences = batch.num_tokens, batch.num_sequences
        cu_seqlens = batch.cu_seqlens
        host_ints[:num_tokens] = batch.token_ids
        host_ints[num_tokens:padded] = 0
        write_positions(host_ints[padded : padded + num_tokens], batch, self._pair_offset)
        # All pad rows at position 0, which every model has.
        host_ints[padded + num_tokens : 2 * padded] = 0
        offsets = host_ints[2 * padded : 2 * padded + num_slots + 2]
        offsets[: num_sequences + 1] = cu_seqlens
        offsets[num_sequences + 1 : -1] = num_tokens
        offsets[-1] = padded
        if num_spans:
            # The memory was another step's before and may be longer than this one's inputs.
            row_offsets = host_ints[2 * padded + num_slots + 2 : self.num_ints]
            bounds = batch.span_offsets().ravel()
            row_offsets[0] = 0
            row_offsets[1 : len(bounds) + 1] = bounds
            row_offsets[len(bounds) + 1 : -1] = bounds[-1]
            row_offsets[-1] = padded
