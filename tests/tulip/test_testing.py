"""Symptoms guarded: a fake whose rows prove nothing, or whose hooks do not act."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotbed.core.output import OutputDtype, OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import EngineDeadError, StepResult
from hotbed.tulip.testing import FakeEngine, FakePending, OutOfMemoryError, expected_rows

sequences = st.lists(
    st.lists(st.integers(0, 29_999), min_size=1, max_size=9), min_size=1, max_size=5
)


@pytest.fixture
def engine():
    engine = FakeEngine()
    yield engine
    engine.close()


def start(engine: FakeEngine, ids: list[list[int]], spec: OutputSpec | None = None) -> FakePending:
    segment = OutputSegment(0, len(ids), spec or OutputSpec())
    return engine.step(RaggedBatch.from_sequences(ids), [segment])


def run(engine: FakeEngine, ids: list[list[int]]) -> StepResult:
    return start(engine, ids).wait()


@given(sequences, st.sampled_from(OutputDtype), st.sampled_from([0, 8, 24]))
@settings(deadline=None)
def test_a_row_is_the_same_alone_and_in_a_batch(
    ids: list[list[int]], dtype: OutputDtype, dimensions: int
) -> None:
    spec = OutputSpec(dimensions, dtype)
    rows = expected_rows(ids, spec)
    assert rows.dtype == dtype.numpy
    assert rows.shape == (len(ids), spec.row_width(32))
    for i, sequence in enumerate(ids):
        np.testing.assert_array_equal(rows[i : i + 1], expected_rows([sequence], spec))


def test_other_ids_or_another_order_give_another_row() -> None:
    rows = expected_rows([[1, 2, 3], [3, 2, 1], [1, 2], [1, 2, 4], [0], [0, 0]])
    assert len(np.unique(rows, axis=0)) == 6
    assert np.abs(rows @ rows.T - np.eye(6)).max() < 0.9


def test_rows_are_cut_then_normalised() -> None:
    rows = expected_rows([[5, 6]], 8)
    assert rows.shape == (1, 8)
    np.testing.assert_allclose(np.linalg.norm(rows), 1, rtol=1e-6)
    raw = expected_rows([[5, 6]], OutputSpec(normalize=False))
    np.testing.assert_allclose(rows[0], raw[0, :8] / np.linalg.norm(raw[0, :8]), rtol=1e-6)


def test_bits_are_the_signs_most_significant_first() -> None:
    raw = expected_rows([[5, 6]], OutputSpec(8, normalize=False))[0]
    value = sum(128 >> i for i in range(8) if raw[i] >= 0)
    assert expected_rows([[5, 6]], OutputSpec(8, OutputDtype.UBINARY)).tolist() == [[value]]
    assert expected_rows([[5, 6]], OutputSpec(8, OutputDtype.BINARY)).tolist() == [[value - 128]]


def test_each_segment_of_a_step_gets_its_own_recipe(engine: FakeEngine) -> None:
    ids = [[1], [2, 3], [4]]
    specs = [OutputSpec(8), OutputSpec(16, OutputDtype.FLOAT16)]
    segments = [OutputSegment(0, 2, specs[0]), OutputSegment(2, 3, specs[1])]
    result = engine.step(RaggedBatch.from_sequences(ids), segments).wait()
    np.testing.assert_array_equal(result.rows[0], expected_rows(ids[:2], specs[0]))
    np.testing.assert_array_equal(result.rows[1], expected_rows(ids[2:], specs[1]))


async def test_a_held_step_waits_and_the_event_loop_does_not(engine: FakeEngine) -> None:
    engine.hold()
    pending = start(engine, [[1]])
    engine.wait_begun(1)
    waiter = asyncio.ensure_future(pending)
    await asyncio.sleep(0)
    assert not pending.ready()
    engine.release()
    result = await waiter
    np.testing.assert_array_equal(result.rows[0], expected_rows([[1]]))


def test_failures_poison_memory_and_nan_act_on_their_step_only(engine: FakeEngine) -> None:
    engine.fail_next(ValueError("once"))
    with pytest.raises(ValueError, match="once"):
        run(engine, [[1]])
    engine.poison[13] = ValueError("poison")
    with pytest.raises(ValueError, match="poison"):
        run(engine, [[1], [2, 13]])
    engine.memory_tokens = 3
    with pytest.raises(OutOfMemoryError):
        run(engine, [[1, 2], [3, 4]])
    engine.non_finite.add(9)
    result = run(engine, [[1], [9], [2]])
    assert result.finite.tolist() == [True, False, True]
    assert np.isnan(result.rows[0]).all(axis=1).tolist() == [False, True, False]
    assert list(engine.steps) == [(1, 1), (2, 3), (2, 4), (3, 3)]


def test_a_dead_engine_fails_what_waits_and_what_comes(engine: FakeEngine) -> None:
    engine.hold()
    first, second = start(engine, [[1]]), start(engine, [[2]])
    engine.die()
    for pending in (first, second):
        with pytest.raises(EngineDeadError):
            pending.wait()
    with pytest.raises(EngineDeadError):
        start(engine, [[3]])
