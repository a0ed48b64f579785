"""Second texts take the second half of the position table, on both kinds of device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hotbed.core.ragged import RaggedBatch
from hotbed.rose.batch import pack
from hotbed.rose.buckets import step_config
from hotbed.rose.buffers import InputBuffers

OFFSET = 1000

# (tokens, second text's start) of each sequence.
sequences = st.lists(
    st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))),
    min_size=1,
    max_size=12,
)


def batch_of(drawn: list[tuple[int, int]]) -> RaggedBatch:
    """Ids name (sequence, position), so that a mix-up cannot hide."""
    batch = RaggedBatch.from_sequences(
        [[1000 * i + p for p in range(n)] for i, (n, _) in enumerate(drawn)]
    )
    starts = np.array([start for _, start in drawn], dtype=np.int32)
    return RaggedBatch(batch.token_ids, batch.cu_seqlens, pair_starts=starts)


def expected(ids: NDArray[np.int32], drawn: list[tuple[int, int]]) -> list[int]:
    found = []
    for token in ids.tolist():
        sequence, position = divmod(token, 1000)
        found.append(position + OFFSET * (position >= drawn[sequence][1]))
    return found


@given(sequences)
def test_packed_tokens_of_second_texts_are_offset(drawn: list[tuple[int, int]]) -> None:
    batch = batch_of(drawn)
    packed = pack(batch, pair_offset=OFFSET)
    real = slice(0, packed.num_tokens)
    ids = packed.token_ids[real].numpy()
    assert packed.positions[real].tolist() == expected(ids, drawn)
    assert set(packed.positions[packed.num_tokens :].tolist()) <= {0}
    # Without the offset nothing but the positions differs.
    plain = pack(batch)
    assert plain.token_ids.tolist() == packed.token_ids.tolist()
    assert plain.positions[real].tolist() == (packed.positions[real] % OFFSET).tolist()


@given(sequences)
def test_gpu_inputs_of_second_texts_are_offset(drawn: list[tuple[int, int]]) -> None:
    batch = batch_of(drawn)
    longest = max(n for n, _ in drawn)
    config = step_config(batch.num_tokens, len(drawn), longest, by_length=True)
    buffers = InputBuffers(config, torch.device("cpu"), pair_offset=OFFSET)
    host = np.full(buffers.num_ints, -7, dtype=np.int32)
    buffers.fill(host, batch)
    buffers.device_ints.copy_(torch.from_numpy(host))
    total = batch.num_tokens
    assert buffers.batch.positions[:total].tolist() == expected(batch.token_ids, drawn)
    assert set(buffers.batch.positions[total:].tolist()) <= {0}


@pytest.mark.parametrize("pair_offset", [0, OFFSET])
def test_a_batch_without_pairs_has_plain_positions(pair_offset: int) -> None:
    batch = RaggedBatch.from_sequences([[1, 2, 3], [4, 5]])
    assert pack(batch, pair_offset=pair_offset).positions[:5].tolist() == [0, 1, 2, 0, 1]
