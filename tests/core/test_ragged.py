"""Batches and their spans: what is sliced, selected or joined keeps its rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotbed.core.ragged import RaggedBatch, Spans


def with_spans(*sequences: tuple[list[int], list[tuple[int, int]]]) -> RaggedBatch:
    """A batch from (ids, spans) a sequence."""
    batch = RaggedBatch.from_sequences(ids for ids, _ in sequences)
    bounds = [bound for _, spans in sequences for bound in spans]
    cu = np.cumsum([0, *(len(spans) for _, spans in sequences)]).astype(np.int32)
    spans = Spans(np.array(bounds, dtype=np.int32).reshape(-1, 2), cu)
    return RaggedBatch(batch.token_ids, batch.cu_seqlens, spans=spans)


def rows(batch: RaggedBatch) -> list[list[int]]:
    """The ids under each row."""
    if batch.spans is None:
        return [batch.sequence(i).tolist() for i in range(batch.num_sequences)]
    return [batch.token_ids[start:stop].tolist() for start, stop in batch.span_offsets()]


@st.composite
def batches(draw: st.DrawFn) -> RaggedBatch:
    sequences = []
    for i in range(draw(st.integers(1, 5))):
        length = draw(st.integers(1, 9))
        num_cuts = 2 * draw(st.integers(1, 3))
        cuts = sorted(draw(st.lists(st.integers(0, length), min_size=num_cuts, max_size=num_cuts)))
        ids = [100 * i + p for p in range(length)]
        sequences.append((ids, list(zip(cuts[::2], cuts[1::2], strict=True))))
    return with_spans(*sequences)


@given(batches(), st.data())
def test_a_part_of_a_batch_keeps_its_own_rows(batch: RaggedBatch, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, batch.num_sequences - 1))
    stop = data.draw(st.integers(start + 1, batch.num_sequences))
    first, last = batch.rows_of(start, stop)
    assert rows(batch.slice(start, stop)) == rows(batch)[first:last]
    assert [batch.sequence_of(row) for row in (first, last - 1)] == [start, stop - 1]


@given(batches())
def test_sequences_in_another_order_take_their_rows_along(batch: RaggedBatch) -> None:
    order = np.arange(batch.num_sequences)[::-1]
    expected = [rows(batch)[slice(*batch.rows_of(i, i + 1))] for i in order.tolist()]
    assert rows(batch.select(order)) == [row for sequence in expected for row in sequence]


@given(batches())
def test_beside_spans_a_plain_sequence_is_one_span(batch: RaggedBatch) -> None:
    plain = RaggedBatch.from_sequences([[7, 8], [9]])
    joined = RaggedBatch.concatenate([plain, batch, plain])
    assert rows(joined) == [[7, 8], [9], *rows(batch), [7, 8], [9]]
    assert RaggedBatch.concatenate([plain, plain]).spans is None


def test_an_empty_span_is_a_row() -> None:
    batch = with_spans(([1, 2, 3], [(0, 0), (1, 2), (2, 2), (3, 3)]), ([4], [(1, 1)]))
    assert rows(batch) == [[], [2], [], [], []]
    assert batch.num_rows == 5


@pytest.mark.parametrize(
    ("spans", "says"),
    [
        ([(0, 4)], "span 0 of sequence 1 is 0 to 4.*3 tokens"),
        ([(-1, 2)], "span 0 of sequence 1 is -1 to 2"),
        ([(2, 1)], "is 2 to 1"),
        ([(0, 2), (1, 3)], "span 1 of sequence 1 is 1 to 3.*overlap"),
        ([(2, 3), (0, 1)], "span 1 of sequence 1"),
        ([], "at least 1 span"),
    ],
)
def test_spans_that_do_not_fit_are_named(spans: list[tuple[int, int]], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        with_spans(([1, 2, 3, 4, 5], [(0, 5)]), ([1, 2, 3], spans))


@pytest.mark.parametrize(
    ("bounds", "cu_spans"),
    [
        (np.zeros((1, 2), np.int64), np.array([0, 1], np.int32)),
        (np.zeros(2, np.int32), np.array([0, 1], np.int32)),
        (np.zeros((1, 2), np.int32), np.array([0, 0, 1], np.int32)),
        (np.zeros((2, 2), np.int32), np.array([0, 1], np.int32)),
        (np.zeros((1, 2), np.int32), np.array([1, 1], np.int32)),
    ],
    ids=["dtype", "flat", "one sequence too many", "one span too many", "not from 0"],
)
def test_malformed_span_arrays_are_refused(bounds: np.ndarray, cu_spans: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"span"):
        RaggedBatch(np.zeros(3, np.int32), np.array([0, 3], np.int32), Spans(bounds, cu_spans))
