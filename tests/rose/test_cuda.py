"""The CUDA runner: graphs, copies and isolation, on a card."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.output import OutputDtype, OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.calibrate import calibrate
from hotbed.rose.cuda import CudaRunner, CudaSettings
from hotbed.rose.engine import RoseEngine
from hotbed.rose.graphs import CaptureMode

pytestmark = pytest.mark.gpu

# bf16 has 8 bits; two layers of unit-scale states leave well under 1e-3 between orders of sums.
MIN_COSINE = 0.999


def _engine(folder: Path, **settings: object) -> RoseEngine:
    cuda = CudaSettings(**settings)  # type: ignore[arg-type]
    return RoseEngine.load(load_checkpoint(str(folder)), device="cuda", cuda=cuda)


@pytest.fixture(params=["bert", "qwen3", "pplx"])
def folder(request: pytest.FixtureRequest) -> Path:
    made: Path = request.getfixturevalue(f"{request.param}_folder")
    return made


@pytest.fixture
def engine(folder: Path) -> Iterator[RoseEngine]:
    engine = _engine(folder)
    yield engine
    engine.close()


def _batch(engine: RoseEngine, lengths: list[int], seed: int = 0) -> RaggedBatch:
    random = np.random.default_rng(seed)
    return RaggedBatch.from_sequences(
        [random.integers(0, engine.info.vocab_size, n) for n in lengths]
    )


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def _counters(engine: RoseEngine) -> tuple[int, int, int]:
    assert isinstance(engine.runner, CudaRunner)
    counters = engine.runner.counters
    return counters.eager, counters.captured, counters.replayed


def test_eager_then_captured_then_replayed_with_equal_rows(engine: RoseEngine) -> None:
    batch = _batch(engine, [5, 9, 1])
    rows = [engine.step(batch).wait().rows[0] for _ in range(4)]
    assert _counters(engine) == (1, 1, 2)
    for later in rows[1:]:
        np.testing.assert_allclose(later, rows[0], atol=1e-2)
        np.testing.assert_array_equal(later, rows[1])


def test_a_replay_with_other_lengths_gives_the_cpus_rows(engine: RoseEngine, folder: Path) -> None:
    cpu = RoseEngine.load(load_checkpoint(str(folder)))
    for seed, lengths in enumerate([[20, 3], [3, 20], [1, 1], [30, 30], [1, 60], [13, 50]]):
        batch = _batch(engine, lengths, seed)
        got = engine.step(batch).wait()
        assert got.finite.all()
        assert _cosines(got.rows[0], cpu.step(batch).wait().rows[0]).min() >= MIN_COSINE
    assert _counters(engine)[2] >= 1
    cpu.close()


def test_random_batches_equal_their_eager_rows_and_memory_stays_flat(folder: Path) -> None:
    engine, eager = _engine(folder), _engine(folder, capture=CaptureMode.OFF)
    random = np.random.default_rng(0)
    reserved = 0
    for round_number in range(300):
        lengths = random.integers(1, 65, random.integers(1, 20)).tolist()
        batch = _batch(engine, lengths, round_number)
        got, expected = engine.step(batch), eager.step(batch)
        assert _cosines(got.wait().rows[0], expected.wait().rows[0]).min() >= MIN_COSINE
        if round_number == 200:
            reserved = torch.cuda.memory_reserved()
    assert torch.cuda.memory_reserved() <= reserved * 1.05
    engine.close()
    eager.close()


def test_nan_left_in_static_inputs_and_pad_rows_never_reaches_a_result(
    bert_folder: Path,
) -> None:
    """Pad rows hold id 0: with NaN in its embedding they are NaN in every layer."""
    engine = _engine(bert_folder)
    random = np.random.default_rng(0)
    batch = RaggedBatch.from_sequences(
        [random.integers(1, engine.info.vocab_size, n) for n in (5, 9, 1)]
    )
    clean = engine.step(batch).wait().rows[0]
    runner = engine.runner
    assert isinstance(runner, CudaRunner)
    with torch.inference_mode():
        runner._model._word[0] = float("nan")  # type: ignore[attr-defined]
    for _ in range(3):
        poisoned = engine.step(batch).wait()
        assert poisoned.finite.all()
        np.testing.assert_allclose(poisoned.rows[0], clean, atol=1e-2)
    engine.close()


def test_segments_on_the_card_equal_the_cpus_forms(engine: RoseEngine) -> None:
    batch = _batch(engine, [4, 9, 2, 5])
    plain = engine.step(batch, [OutputSegment(0, 4, OutputSpec(normalize=False))]).wait().rows[0]
    specs = [
        OutputSpec(dimensions=16, dtype=OutputDtype.UBINARY),
        OutputSpec(dimensions=8, normalize=True),
        OutputSpec(dtype=OutputDtype.INT8, normalize=False),
    ]
    bounds = [(0, 1), (1, 3), (3, 4)]
    segments = [OutputSegment(a, b, s) for (a, b), s in zip(bounds, specs, strict=True)]
    rows = engine.step(batch, segments).wait().rows
    np.testing.assert_array_equal(rows[0], np.packbits(plain[:1, :16] >= 0, axis=-1))
    cut = plain[1:3, :8] / np.linalg.norm(plain[1:3, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(rows[1], cut, atol=1e-5)
    assert rows[2].dtype == np.int8


def test_many_steps_in_flight_each_keep_their_own_rows(engine: RoseEngine) -> None:
    batches = [_batch(engine, [n % 60 + 1, 3], seed=n) for n in range(40)]
    expected = [engine.step(b).wait().rows[0] for b in batches]
    flying = [engine.step(b) for b in batches]
    for pending, rows in zip(flying, expected, strict=True):
        assert _cosines(pending.wait().rows[0], rows).min() >= 0.9999


def test_the_oldest_graph_goes_when_there_are_too_many(bert_folder: Path) -> None:
    engine = _engine(bert_folder, max_graphs=2)
    for num_tokens in (10, 70, 130):
        for _ in range(2):
            engine.step(_batch(engine, [min(num_tokens, 60)] * (1 + num_tokens // 60))).wait()
    assert isinstance(engine.runner, CudaRunner)
    assert engine.runner.counters.evicted == 1
    engine.close()


def test_idle_mode_captures_without_a_step_and_replays_equal_rows(folder: Path) -> None:
    engine = _engine(folder, capture=CaptureMode.IDLE)
    batch = _batch(engine, [5, 9, 1])
    rows = [engine.step(batch).wait().rows[0] for _ in range(3)]
    assert _counters(engine) == (3, 0, 0)
    deadline = time.monotonic() + 20
    while engine.idle():
        assert time.monotonic() < deadline
    assert engine.counters()["captured_idle"] == 1
    rows += [engine.step(batch).wait().rows[0] for _ in range(3)]
    assert _counters(engine) == (3, 1, 3)
    for later in rows[1:]:
        np.testing.assert_allclose(later, rows[0], atol=1e-2)
    engine.close()


def test_a_capture_behind_steps_in_flight_leaves_their_rows_alone(folder: Path) -> None:
    """Captures do not wait for the device: what runs meanwhile must not notice."""
    engine, eager = _engine(folder, max_graphs=3), _engine(folder, capture=CaptureMode.OFF)
    batches = [_batch(engine, [1 + n % 60] * (1 + n % 7), seed=n) for n in range(60)]
    flying = [engine.step(b) for b in batches for _ in range(3)]
    expected = [eager.step(b).wait().rows[0] for b in batches]
    for index, pending in enumerate(flying):
        got = pending.wait()
        assert got.finite.all()
        assert _cosines(got.rows[0], expected[index // 3]).min() >= MIN_COSINE
    assert engine.counters()["evicted"] > 0
    engine.close()
    eager.close()


def test_calibration_times_both_ways_on_the_card(bert_folder: Path) -> None:
    engine = _engine(bert_folder, max_graph_tokens=16_384)
    made = calibrate(engine, sizes=(64, 1024))
    assert [t.num_tokens for t in made.times] == [64, 1024]
    assert all(t.replayed_ms is not None and t.replayed_ms > 0 for t in made.times)
    assert made.max_graph_tokens in (0, 64, 1024)
    engine.close()
