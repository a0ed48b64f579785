from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotbed.text.split import split


def lengths(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, dtype=np.int32)


@given(
    values=st.lists(st.integers(1, 40), max_size=40),
    max_tokens=st.integers(1, 60),
    max_sequences=st.integers(1, 10),
)
def test_chunks_cover_everything_in_order_and_are_full(
    values: list[int], max_tokens: int, max_sequences: int
) -> None:
    chunks = split(lengths(*values), max_tokens=max_tokens, max_sequences=max_sequences)
    assert [i for start, stop in chunks for i in range(start, stop)] == list(range(len(values)))
    for start, stop in chunks:
        inside = values[start:stop]
        assert 1 <= len(inside) <= max_sequences
        assert sum(inside) <= max_tokens or len(inside) == 1
        if stop < len(values):  # the next one would not have fitted
            assert len(inside) == max_sequences or sum(inside) + values[stop] > max_tokens


def test_sequence_longer_than_a_chunk_goes_alone() -> None:
    chunks = split(lengths(2, 100, 3, 3), max_tokens=10, max_sequences=8)
    assert chunks == [(0, 1), (1, 2), (2, 4)]


def test_chunk_of_exactly_the_limit_is_one_chunk() -> None:
    assert split(lengths(5, 5), max_tokens=10, max_sequences=2) == [(0, 2)]
    assert split(lengths(5, 5, 1), max_tokens=10, max_sequences=9) == [(0, 2), (2, 3)]


def test_more_tokens_than_int32_holds_do_not_wrap() -> None:
    big = 2**30
    assert split(lengths(big, big, big), max_tokens=2 * big, max_sequences=9) == [(0, 2), (2, 3)]


def test_nothing_gives_no_chunk() -> None:
    assert split(lengths(), max_tokens=1, max_sequences=1) == []


@pytest.mark.parametrize(("max_tokens", "max_sequences"), [(0, 1), (1, 0), (-1, 1)])
def test_ceiling_below_one_does_not_loop_for_ever(max_tokens: int, max_sequences: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        split(lengths(1), max_tokens=max_tokens, max_sequences=max_sequences)


def test_sequences_may_count_as_several() -> None:
    lengths = np.array([5, 5, 5, 5], dtype=np.int32)
    counts = np.array([3, 2, 9, 1], dtype=np.int32)
    cut = split(lengths, max_tokens=100, max_sequences=5, counts=counts)
    assert cut == [(0, 2), (2, 3), (3, 4)]
