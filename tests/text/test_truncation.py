from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotbed.core.ragged import RaggedBatch
from hotbed.text.template import Template
from hotbed.text.truncation import TruncationSide, truncate

IDS = st.integers(10, 99)


def plain(ids: list[int], limit: int, side: str, template: Template) -> list[int]:
    """The same on lists, one sequence at a time."""
    if len(ids) <= limit:
        return ids
    head, tail = list(template.prefix), list(template.suffix)
    head = head if ids[: len(head)] == head else []
    tail = tail if ids[len(ids) - len(tail) :] == tail else []
    body = ids[len(head) : len(ids) - len(tail)]
    room = limit - len(head) - len(tail)
    return head + (body[:room] if side == "right" else body[len(body) - room :]) + tail


@given(
    bodies=st.lists(st.lists(IDS, min_size=1, max_size=20), min_size=1, max_size=8),
    prefix=st.lists(st.integers(0, 4), max_size=3),
    suffix=st.lists(st.integers(5, 9), max_size=3),
    room=st.integers(1, 12),
    side=st.sampled_from(["left", "right"]),
    with_specials=st.booleans(),
)
def test_specials_stay_and_the_other_side_stays_whole(
    bodies: list[list[int]],
    prefix: list[int],
    suffix: list[int],
    room: int,
    side: TruncationSide,
    with_specials: bool,
) -> None:
    template = Template(tuple(prefix), tuple(suffix))
    limit = room + template.num_special_tokens
    sequences = [prefix + b + suffix if with_specials else b for b in bodies]
    batch = RaggedBatch.from_sequences(sequences)
    cut, num_cut = truncate(batch, max_tokens=limit, side=side, template=template)
    expected = [plain(s, limit, side, template) for s in sequences]
    assert [cut.sequence(i).tolist() for i in range(cut.num_sequences)] == expected
    assert num_cut == sum(len(s) > limit for s in sequences)
    assert cut.lengths.max() <= limit
    again, num_again = truncate(cut, max_tokens=limit, side=side, template=template)
    assert again is cut
    assert num_again == 0


@pytest.mark.parametrize("order", [[3, 30], [30, 3], [30, 30], [3, 3]])
def test_order_of_short_and_long_does_not_matter(order: list[int]) -> None:
    batch = RaggedBatch.from_sequences([list(range(n)) for n in order])
    cut, num_cut = truncate(batch, max_tokens=10, side="right", template=Template())
    assert cut.lengths.tolist() == [min(n, 10) for n in order]
    assert num_cut == sum(n > 10 for n in order)


def test_input_is_not_written_to() -> None:
    batch = RaggedBatch.from_sequences([list(range(20))])
    before = batch.token_ids.copy()
    truncate(batch, max_tokens=5, side="left", template=Template((0,), (19,)))
    assert np.array_equal(batch.token_ids, before)
