"""Packing: sorting, padding and the way back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotbed.core.ragged import RaggedBatch
from hotbed.rose.batch import LengthGroup, pack, token_bucket
from tests.core.test_ragged import batches, rows


@given(st.integers(1, 100_000))
def test_bucket_holds_the_tokens_and_wastes_little(num_tokens: int) -> None:
    bucket = token_bucket(num_tokens)
    assert num_tokens <= bucket
    assert bucket - num_tokens < 8 or (bucket - num_tokens) / bucket < 0.2


def test_there_are_few_buckets_so_few_kernels_are_built() -> None:
    assert len({token_bucket(n) for n in range(1, 2049)}) <= 80


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_every_token_keeps_its_sequence_and_position(lengths: list[int]) -> None:
    # Token ids name (sequence, position), so that a mix-up cannot hide.
    batch = RaggedBatch.from_sequences(
        [[1000 * i + p + 1 for p in range(n)] for i, n in enumerate(lengths)]
    )
    packed = pack(batch)
    rows = []  # (sequence, length) in packed order
    for group in packed.groups:
        ids = packed.token_ids[group.start : group.stop].view(group.count, group.length)
        positions = packed.positions[group.start : group.stop].view(group.count, group.length)
        for row_ids, row_positions in zip(ids.tolist(), positions.tolist(), strict=True):
            assert row_positions == list(range(group.length))
            sequence = row_ids[0] // 1000
            assert row_ids == [1000 * sequence + p + 1 for p in range(group.length)]
            rows.append(sequence)
    assert [rows[r] for r in packed.restore] == list(range(len(lengths)))
    assert packed.num_tokens == sum(lengths)
    assert packed.token_ids[packed.num_tokens :].tolist() == [0] * (
        len(packed.token_ids) - packed.num_tokens
    )


@given(batches())
def test_every_span_keeps_its_tokens(batch: RaggedBatch) -> None:
    packed = pack(batch)
    assert packed.row_offsets is not None
    offsets = packed.row_offsets.tolist()
    assert offsets == sorted(offsets), "gap and span by turns"
    assert (offsets[0], offsets[-1]) == (0, len(packed.token_ids))
    ids = packed.token_ids.tolist()
    spans = [ids[a:b] for a, b in zip(offsets[1:-1:2], offsets[2:-1:2], strict=True)]
    assert [spans[row] for row in packed.restore] == rows(batch)


def test_equal_lengths_make_one_group() -> None:
    packed = pack(RaggedBatch.from_sequences([[1, 2], [3, 4, 5], [6, 7]]))
    assert packed.groups == (LengthGroup(0, 1, 3), LengthGroup(3, 2, 2))


@pytest.mark.parametrize(
    ("ids", "cu_seqlens"),
    [
        (np.zeros(3, np.int64), np.array([0, 3], np.int32)),
        (np.zeros(3, np.int32), np.array([0, 2], np.int32)),
        (np.zeros(3, np.int32), np.array([0, 3, 2, 3], np.int32)),
        (np.zeros(6, np.int32)[::2], np.array([0, 3], np.int32)),
    ],
    ids=["dtype", "offsets end short", "offsets fall", "strided"],
)
def test_a_malformed_batch_is_refused(ids: np.ndarray, cu_seqlens: np.ndarray) -> None:
    with pytest.raises(ValueError, match="must"):
        RaggedBatch(ids, cu_seqlens)
