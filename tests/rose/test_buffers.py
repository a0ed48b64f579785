"""The static inputs of a GPU step, filled on the host."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from hotbed.core.ragged import RaggedBatch
from hotbed.rose.buckets import step_config
from hotbed.rose.buffers import InputBuffers
from tests.core.test_ragged import batches, rows


@given(st.lists(st.integers(1, 80), min_size=1, max_size=12))
def test_every_row_has_its_id_its_position_and_its_slot(lengths: list[int]) -> None:
    batch = RaggedBatch.from_sequences(
        [[100 * i + p + 1 for p in range(n)] for i, n in enumerate(lengths)]
    )
    config = step_config(batch.num_tokens, len(lengths), max(lengths), by_length=True)
    buffers = InputBuffers(config, torch.device("cpu"))
    # What an earlier step left behind must not matter.
    host = np.full(buffers.num_ints, -7, dtype=np.int32)
    buffers.fill(host, batch)
    buffers.device_ints.copy_(torch.from_numpy(host))
    made, total = buffers.batch, batch.num_tokens
    assert made.token_ids[:total].tolist() == batch.token_ids.tolist()
    assert made.positions[:total].tolist() == [p for n in lengths for p in range(n)]
    assert set(made.token_ids[total:].tolist()) <= {0}
    assert set(made.positions[total:].tolist()) <= {0}
    offsets = made.cu_seqlens.tolist()
    assert len(offsets) == config.num_slots + 2
    assert offsets[: len(lengths) + 1] == batch.cu_seqlens.tolist()
    assert set(offsets[len(lengths) + 1 : -1]) <= {total}
    assert offsets[-1] == config.num_tokens
    assert max(np.diff(offsets)) <= made.max_seqlen


@given(batches())
def test_every_span_has_its_place_and_room_that_is_left_over_is_empty(batch: RaggedBatch) -> None:
    config = step_config(
        batch.num_tokens,
        batch.num_sequences,
        int(batch.lengths.max()),
        by_length=True,
        num_spans=batch.num_rows,
    )
    buffers = InputBuffers(config, torch.device("cpu"))
    host = np.full(buffers.num_ints, -7, dtype=np.int32)
    buffers.fill(host, batch)
    buffers.device_ints.copy_(torch.from_numpy(host))
    made = buffers.batch
    assert made.row_offsets is not None
    offsets = made.row_offsets.tolist()
    assert len(offsets) == 2 * config.num_spans + 2
    assert offsets == sorted(offsets)
    assert (offsets[0], offsets[-1]) == (0, config.num_tokens)
    ids = made.token_ids.tolist()
    spans = [ids[a:b] for a, b in zip(offsets[1:-1:2], offsets[2:-1:2], strict=True)]
    assert spans[: batch.num_rows] == rows(batch)
    assert not any(spans[batch.num_rows :])
    assert made.cu_seqlens.tolist()[: batch.num_sequences + 1] == batch.cu_seqlens.tolist()
