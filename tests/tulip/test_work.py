"""Symptoms guarded: a step whose batch, segments or halves do not match its parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import StepResult
from hotbed.tulip.testing import FAKE_INFO
from hotbed.tulip.work import Item, Part, Step

SPECS = [OutputSpec(8), OutputSpec(16), OutputSpec(8, OutputDtype.INT8)]

parts = st.lists(
    st.tuples(
        st.lists(st.integers(1, 5), min_size=1, max_size=5),
        st.sampled_from(SPECS),
        st.integers(0, 4),
        st.integers(1, 5),
    ),
    min_size=1,
    max_size=6,
)


def make_parts(drawn: list[tuple[list[int], OutputSpec, int, int]]) -> list[Part]:
    made, next_id = [], 0
    for lengths, spec, start, num in drawn:
        ids = [list(range(next_id + 10 * k, next_id + 10 * k + n)) for k, n in enumerate(lengths)]
        next_id += 100
        item = Item(RaggedBatch.from_sequences(ids), spec, on_answer=lambda _: None)
        first = min(start, len(lengths) - 1)
        made.append(Part.of(item, first, min(first + num, len(lengths))))
    return made


def sequences(parts: list[Part]) -> list[list[int]]:
    return [p.item.batch.sequence(k).tolist() for p in parts for k in range(p.start, p.stop)]


@given(parts)
@settings(deadline=None)
def test_a_steps_batch_holds_its_parts_in_the_order_of_its_segments(
    drawn: list[tuple[list[int], OutputSpec, int, int]],
) -> None:
    made = make_parts(drawn)
    step = Step.of(made)
    batch, segments = step.build()
    ordered = list(step.parts())
    assert sorted(map(id, (p.item for p in ordered))) == sorted(map(id, (p.item for p in made)))
    assert [batch.sequence(i).tolist() for i in range(batch.num_sequences)] == sequences(ordered)
    assert (step.num_sequences, step.num_tokens) == (batch.num_sequences, batch.num_tokens)
    assert len({s.spec for s in segments}) == len(segments), "one segment a recipe"
    assert [s.start for s in segments] == [0, *(s.stop for s in segments[:-1])]
    by_row = [s.spec for s in segments for _ in range(s.start, s.stop)]
    assert by_row == [p.item.spec for p in ordered for _ in range(p.start, p.stop)]


@given(parts)
@settings(deadline=None)
def test_halves_hold_every_sequence_once_and_are_as_equal_as_can_be(
    drawn: list[tuple[list[int], OutputSpec, int, int]],
) -> None:
    step = Step.of(make_parts(drawn))
    left, right = step.halves()
    assert left.num_sequences - right.num_sequences in (0, 1)
    both = sequences(list(left.parts())) + sequences(list(right.parts()))
    assert sorted(both) == sorted(sequences(list(step.parts())))


def test_a_whole_items_rows_are_kept_without_a_copy_and_parts_are_assembled() -> None:
    batch = RaggedBatch.from_sequences([[1], [2], [3]])
    rows = np.arange(6, dtype="<f4").reshape(3, 2)
    whole = Item(batch, SPECS[0], on_answer=lambda _: None)
    whole.store(0, rows)
    assert whole.rows is rows
    split = Item(batch, SPECS[0], on_answer=lambda _: None)
    split.store(2, rows[2:])
    split.store(0, rows[:2])
    assert split.num_done == 3
    np.testing.assert_array_equal(split.rows, rows)


@pytest.mark.parametrize("shape", [(2, 7), (1, 8), (3, 8)])
def test_a_result_of_another_shape_is_the_engines_bug(shape: tuple[int, int]) -> None:
    batch = RaggedBatch.from_sequences([[1], [2]])
    step = Step.of([Part.of(Item(batch, SPECS[0], on_answer=lambda _: None), 0, 2)])
    step.check(StepResult([np.zeros((2, 8))], np.ones(2, bool)), FAKE_INFO)
    with pytest.raises(RuntimeError, match="this is a bug"):
        step.check(StepResult([np.zeros(shape)], np.ones(2, bool)), FAKE_INFO)
    with pytest.raises(RuntimeError, match="this is a bug"):
        step.check(StepResult([np.zeros((2, 8))], np.ones(3, bool)), FAKE_INFO)
