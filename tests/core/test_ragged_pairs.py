"""The second texts' starts stay with their sequences, however a batch is cut and joined."""

from __future__ import annotations

import numpy as np
import pytest

from hotbed.core.ragged import RaggedBatch, join_pair_starts


def pairs(ids: list[list[int]], starts: list[int]) -> RaggedBatch:
    batch = RaggedBatch.from_sequences(ids)
    return RaggedBatch(
        batch.token_ids, batch.cu_seqlens, pair_starts=np.array(starts, dtype=np.int32)
    )


BATCH = pairs([[1, 2, 3], [4], [5, 6], [7, 8]], [2, 1, 0, 1])


def starts_of(batch: RaggedBatch) -> list[int]:
    assert batch.pair_starts is not None
    starts: list[int] = batch.pair_starts.tolist()
    return starts


def test_a_slice_keeps_them() -> None:
    assert starts_of(BATCH.slice(1, 3)) == [1, 0]


def test_a_selection_keeps_them_in_its_order() -> None:
    picked = BATCH.select([2, 0])
    assert starts_of(picked) == [0, 2]
    assert picked.token_ids.tolist() == [5, 6, 1, 2, 3]
    assert starts_of(BATCH.select(np.array([3]))) == [1]


def test_a_batch_without_any_counts_as_first_texts_only() -> None:
    single = RaggedBatch.from_sequences([[9, 9], [9]])
    assert starts_of(RaggedBatch.concatenate([BATCH, single])) == [2, 1, 0, 1, 2, 1]
    assert join_pair_starts([single, single]) is None
    assert RaggedBatch.concatenate([single, single]).pair_starts is None
    assert single.select([1]).pair_starts is None


@pytest.mark.parametrize("starts", [[3], [-1], [0, 0]])
def test_starts_outside_their_sequence_are_refused(starts: list[int]) -> None:
    with pytest.raises(ValueError, match="pair_starts"):
        pairs([[1, 2]], starts)


def test_another_dtype_is_refused() -> None:
    batch = RaggedBatch.from_sequences([[1, 2]])
    with pytest.raises(ValueError, match=r"pair_starts must be int32 \[S\]"):
        RaggedBatch(batch.token_ids, batch.cu_seqlens, pair_starts=np.array([1]))  # type: ignore[arg-type]
