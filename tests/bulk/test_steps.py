"""Steps that fail are cut in halves; a job goes on, or names the row at fault."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hotbed.bulk import read
from hotbed.bulk.job import run_job
from hotbed.bulk.local import LocalModel, ModelOptions
from hotbed.bulk.options import JobOptions
from hotbed.bulk.runner import InProcess
from hotbed.bulk.steps import SequenceError, Steps
from hotbed.core.errors import HotbedError
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import EngineDeadError
from hotbed.tulip.testing import FAKE_INFO, FakeEngine, expected_rows
from tests.bulk.jobs import texts, write_jsonl

LENGTHS = [9, 3, 7, 1, 8, 2, 5, 6, 4, 9, 9, 3]


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


def batch() -> RaggedBatch:
    return RaggedBatch.from_sequences([list(range(10 * n, 10 * n + n)) for n in LENGTHS])


def rows(engine: FakeEngine) -> tuple[np.ndarray, Steps]:
    steps = Steps(engine, OutputSpec(), step_tokens=24)
    ((_, made, finite),) = steps.compute(iter(["window"]), lambda _: batch())
    assert finite.all()
    return made, steps


def test_a_step_that_runs_out_of_memory_is_cut_in_halves(engine: FakeEngine) -> None:
    engine.memory_tokens = 10
    made, steps = rows(engine)
    np.testing.assert_array_equal(made, expected_rows(batch(), OutputSpec()))
    assert steps.num_split > 0
    assert max(tokens for _, tokens in engine.steps) > 10


def test_a_step_that_fails_once_is_run_again_whole(engine: FakeEngine) -> None:
    engine.fail_next(MemoryError("beside another step"))
    made, steps = rows(engine)
    np.testing.assert_array_equal(made, expected_rows(batch(), OutputSpec()))
    assert steps.num_split == 0


def test_a_sequence_that_fails_alone_is_named(engine: FakeEngine) -> None:
    engine.memory_tokens = 8
    with pytest.raises(SequenceError) as caught:
        rows(engine)
    assert LENGTHS[caught.value.index] == caught.value.num_tokens == 9
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_dead_engine_is_not_asked_again(engine: FakeEngine) -> None:
    engine.fail_next(EngineDeadError("gone"))
    with pytest.raises(EngineDeadError):
        rows(engine)


def _job(bert_folder: Path, tmp_path: Path, memory_tokens: int) -> np.ndarray:
    corpus = write_jsonl(tmp_path / "c.jsonl", [{"text": text} for text in TEXTS])
    model = LocalModel(ModelOptions(model=str(bert_folder)))
    engine = FakeEngine(FAKE_INFO)
    engine.memory_tokens = memory_tokens
    runner = InProcess(lambda _: (model.backend(engine, 64), 64))
    out = tmp_path / "out"
    run_job([str(corpus)], JobOptions(out=out), model.recipe, runner, output=io.StringIO())
    return np.array(pq.read_table(out)["embedding"].to_pylist(), dtype=np.float32)


TEXTS = texts(60, max_words=8)


def test_a_job_whose_steps_run_out_of_memory_goes_on(
    bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "WINDOW_ROWS", 16)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    plenty = _job(bert_folder, tmp_path / "a", 1000)
    np.testing.assert_array_equal(_job(bert_folder, tmp_path / "b", 50), plenty)


def test_a_job_names_the_text_that_does_not_fit_alone(bert_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        HotbedError, match=r"c\.jsonl, line \d+: the engine runs out of memory on this text of"
    ):
        _job(bert_folder, tmp_path, 5)
