"""The CUDA runner's own logic, on a fake of the device: copies, forms, modes of capture."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from hotbed.core.output import OutputDtype, OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import StepResult
from hotbed.rose import cuda
from hotbed.rose.cuda import CudaRunner
from hotbed.rose.graphs import CaptureMode
from hotbed.rose.layers.dense import Dense
from hotbed.rose.recipe import Recipe
from tests.core.test_ragged import with_spans

pytest.importorskip("hotbed.rose.kernels.pool", reason="Triton is not installed")

from tests.rose.fake_cuda import VOCABULARY, WIDTH, FakeCuda, TableModel

MEAN = Recipe("mean", False, "none")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda(monkeypatch)


@pytest.fixture
def model() -> TableModel:
    return TableModel()


def _batch(lengths: list[int], seed: int = 0) -> RaggedBatch:
    random = np.random.default_rng(seed)
    return RaggedBatch.from_sequences([random.integers(0, VOCABULARY, n) for n in lengths])


def _run(runner: CudaRunner, batch: RaggedBatch, *specs: OutputSpec) -> StepResult:
    """One segment a spec, of one sequence each but the last."""
    stops = [*range(1, len(specs)), batch.num_sequences]
    starts = [0, *stops[:-1]]
    segments = [OutputSegment(*b) for b in zip(starts, stops, specs, strict=True)]
    return runner.submit(batch, segments).result(timeout=20)


def _expected(model: TableModel, batch: RaggedBatch) -> np.ndarray:
    rows = [model.mean(batch.sequence(i)).numpy() for i in range(batch.num_sequences)]
    return np.stack(rows)


@pytest.mark.parametrize("mode", CaptureMode)
@pytest.mark.parametrize("normalize", [False, True])
def test_rows_are_right_in_every_mode_and_outlive_later_steps(
    fake: FakeCuda, model: TableModel, mode: CaptureMode, normalize: bool
) -> None:
    runner = fake.runner(model, Recipe("mean", normalize, "none"), capture=mode)
    kept = []
    for seed in range(40):
        batch = _batch([5, 9, 1] if seed % 2 else [61], seed)
        kept.append((batch, _run(runner, batch, OutputSpec())))
        if seed % 10 == 9:
            while runner.idle():
                time.sleep(0.001)  # until the last step counts as done
    for batch, result in kept:
        expected = _expected(model, batch)
        if normalize:
            expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(result.rows[0], expected, rtol=1e-4, atol=1e-5)
        assert result.rows[0].dtype == np.float32
        assert result.finite.all()
        assert result.finite.shape == (batch.num_sequences,)
        assert result.rows[0].flags.c_contiguous
        assert result.rows[0].flags.owndata or result.rows[0].base is not None
    runner.close()


def test_forms_share_a_step_and_each_segment_gets_its_own(
    fake: FakeCuda, model: TableModel
) -> None:
    runner = fake.runner(model, MEAN)
    batch = _batch([4, 9, 2, 5, 3])
    plain = _expected(model, batch)
    specs = [
        OutputSpec(),
        OutputSpec(dimensions=16, dtype=OutputDtype.UBINARY),
        OutputSpec(dimensions=8, normalize=True),
        OutputSpec(WIDTH, normalize=False),
    ]
    for _ in range(3):  # eager, captured, replayed
        rows = _run(runner, batch, *specs).rows
        np.testing.assert_allclose(rows[0], plain[:1], rtol=1e-4)
        np.testing.assert_array_equal(rows[1], np.packbits(plain[1:2, :16] >= 0, axis=-1))
        cut = plain[2:3, :8] / np.linalg.norm(plain[2:3, :8], axis=1, keepdims=True)
        np.testing.assert_allclose(rows[2], cut, rtol=1e-4)
        np.testing.assert_allclose(rows[3], plain[3:], rtol=1e-4)
    half = _run(runner, batch, OutputSpec(dtype=OutputDtype.FLOAT16)).rows[0]
    np.testing.assert_allclose(half, plain, rtol=1e-2)
    runner.close()


@pytest.mark.parametrize("normalize", [False, True])
def test_chunks_get_their_rows_in_steps_beside_steps_without(
    fake: FakeCuda, model: TableModel, normalize: bool
) -> None:
    runner = fake.runner(model, Recipe("mean", normalize, "none"))
    plain = _batch([5, 2])
    for seed in range(4):  # eager, captured, replayed
        ids = np.random.default_rng(seed).integers(0, VOCABULARY, 9).tolist()
        batch = with_spans((ids[:6], [(0, 2), (2, 2), (3, 6)]), (ids[6:], [(1, 3)]))
        expected = np.zeros((4, WIDTH), np.float32)
        for row, start, part in ((0, 0, ids[0:2]), (2, 3, ids[3:6]), (3, 1, ids[7:9])):
            # A state of the model is its token's row plus its position.
            expected[row] = model.mean(np.array(part, np.int32)).numpy() + start
        if normalize:
            expected[[0, 2, 3]] /= np.linalg.norm(expected[[0, 2, 3]], axis=1, keepdims=True)
        segments = (
            OutputSegment(0, 3, OutputSpec()),
            OutputSegment(3, 4, OutputSpec(dimensions=8, normalize=normalize)),
        )
        result = runner.submit(batch, segments).result(timeout=20)
        np.testing.assert_allclose(result.rows[0], expected[:3], rtol=1e-4, atol=1e-5)
        part = expected[3:, :8]
        if normalize:
            part = part / np.linalg.norm(part, axis=1, keepdims=True)
        np.testing.assert_allclose(result.rows[1], part, rtol=1e-4, atol=1e-5)
        assert result.finite.tolist() == [True] * 4
        assert _run(runner, plain, OutputSpec()).rows[0].shape == (2, WIDTH)
    assert runner.counters.replayed > 0
    runner.close()


@pytest.mark.parametrize("normalize", [False, True])
def test_rows_of_dense_modules_come_in_every_form(
    fake: FakeCuda, model: TableModel, normalize: bool
) -> None:
    weight = torch.randn(16, WIDTH, generator=torch.Generator().manual_seed(0))
    recipe = Recipe("mean", normalize, "none", (Dense(weight, None, "tanh"),))
    runner = fake.runner(model, recipe)
    batch = _batch([5, 2, 7])
    expected = np.tanh(_expected(model, batch) @ weight.numpy().T)
    if normalize:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    for _ in range(3):  # eager, captured, replayed
        result = _run(runner, batch, OutputSpec(), OutputSpec(dtype=OutputDtype.BINARY))
        np.testing.assert_allclose(result.rows[0], expected[:1], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(
            result.rows[1].view(np.uint8) ^ 0x80, np.packbits(expected[1:] >= 0, axis=-1)
        )
        assert result.finite.tolist() == [True] * 3
    runner.close()


def test_a_bad_row_is_marked_with_its_sequence_and_pad_rows_never_are(
    fake: FakeCuda, model: TableModel
) -> None:
    model.table[7] = float("inf")
    runner = fake.runner(model, MEAN)
    batch = RaggedBatch.from_sequences([[1, 2], [3, 7], [5]])
    for _ in range(3):
        assert _run(runner, batch, OutputSpec()).finite.tolist() == [True, False, True]
    runner.close()


def test_many_steps_in_flight_share_no_memory(fake: FakeCuda, model: TableModel) -> None:
    runner = fake.runner(model, MEAN)
    batches = [_batch([n % 60 + 1, 3], seed=n) for n in range(60)]
    segment = (OutputSegment(0, 2, OutputSpec()),)
    flying = [runner.submit(b, segment) for b in batches]
    for batch, future in zip(batches, flying, strict=True):
        rows = future.result(timeout=20).rows[0]
        np.testing.assert_allclose(rows, _expected(model, batch), rtol=1e-4, atol=1e-5)
    runner.close()


def test_the_callers_stream_is_current_again_also_after_a_failure(
    fake: FakeCuda, model: TableModel
) -> None:
    runner = fake.runner(model, MEAN)
    before = fake.current
    _run(runner, _batch([3]), OutputSpec())
    assert fake.current is before
    model.fail_with = RuntimeError("boom")
    future = runner.submit(_batch([100]), (OutputSegment(0, 1, OutputSpec()),))
    assert fake.current is before
    with pytest.raises(RuntimeError, match="boom"):
        future.result(timeout=20)
    model.fail_with = None
    _run(runner, _batch([100]), OutputSpec())
    runner.close()


def test_steps_work_from_a_thread_in_inference_mode_and_from_one_that_is_not(
    fake: FakeCuda, model: TableModel
) -> None:
    runner = fake.runner(model, MEAN)
    batch = _batch([5, 2])
    for _ in range(2):
        with torch.inference_mode():
            inside = _run(runner, batch, OutputSpec(), OutputSpec(dimensions=8))
        outside = _run(runner, batch, OutputSpec(), OutputSpec(dimensions=8))
        for a, b in zip(inside.rows, outside.rows, strict=True):
            np.testing.assert_array_equal(a, b)
    runner.close()


def _fewer_usual_sizes(monkeypatch: pytest.MonkeyPatch, *, step: int = 1024) -> None:
    """The fake runs the kernels in Triton's interpreter: all of them take most of a minute."""
    monkeypatch.setattr(cuda, "_USUAL_TEXTS", (3,))
    monkeypatch.setattr(cuda, "_USUAL_STEPS", (step,))


def _idle_to_the_end(runner: CudaRunner) -> None:
    while runner.idle():
        time.sleep(0.001)


def test_idle_mode_captures_what_was_seen_and_what_is_likely_and_no_request_pays(
    fake: FakeCuda, model: TableModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fewer_usual_sizes(monkeypatch, step=4096)
    runner = fake.runner(model, MEAN, capture=CaptureMode.IDLE)
    runner.warm_up()
    assert runner.counters.captured == 0
    batch = _batch([70, 70, 70])
    for _ in range(3):
        _run(runner, batch, OutputSpec())
    assert runner.counters.captured == 0
    _idle_to_the_end(runner)
    captured = runner.counters.captured
    assert captured == runner.counters.captured_idle > 3
    replayed = runner.counters.replayed
    for lengths in ([70, 70, 70], [64], [100], [128] * 32):
        _run(runner, _batch(lengths), OutputSpec())
    assert runner.counters.replayed == replayed + 4
    assert runner.counters.captured == captured
    assert not runner.idle(), "nothing is left"
    runner.close()


def test_idle_mode_under_load_without_end_captures_at_last(
    fake: FakeCuda, model: TableModel
) -> None:
    runner = fake.runner(model, MEAN, capture=CaptureMode.IDLE)
    for _ in range(50):
        _run(runner, _batch([3]), OutputSpec())
    assert (runner.counters.captured, runner.counters.captured_idle) == (1, 0)
    assert runner.counters.eager < 40
    runner.close()


def test_start_mode_captures_the_usual_sizes_before_the_first_request(
    fake: FakeCuda, model: TableModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fewer_usual_sizes(monkeypatch)
    runner = fake.runner(model, MEAN, max_tokens=512, capture=CaptureMode.START)
    runner.warm_up()
    before = runner.counters.replayed, runner.counters.captured
    for batch in (_batch([128]), _batch([512] * 2), _batch([512] * 3)):
        _run(runner, batch, OutputSpec())
    assert (runner.counters.replayed, runner.counters.captured) == (before[0] + 3, before[1])
    assert not runner.idle()
    runner.close()


@pytest.mark.parametrize("mode", [CaptureMode.START, CaptureMode.IDLE])
def test_no_text_of_the_warm_up_is_longer_than_the_model_takes(
    fake: FakeCuda, model: TableModel, mode: CaptureMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fewer_usual_sizes(monkeypatch)
    monkeypatch.setattr(cuda, "_WARM_UP_TOKENS", (64, 128))
    runner = fake.runner(model, MEAN, max_tokens=32, capture=mode)
    runner.warm_up()
    _idle_to_the_end(runner)
    assert model.longest == 32
    runner.close()


def test_steps_above_the_crossover_are_always_eager(fake: FakeCuda, model: TableModel) -> None:
    runner = fake.runner(model, MEAN, max_graph_tokens=128)
    for _ in range(3):
        _run(runner, _batch([100, 100]), OutputSpec())
    assert (runner.counters.eager, runner.counters.captured) == (3, 0)
    runner.close()


def test_inputs_of_configurations_without_a_graph_are_given_up(
    fake: FakeCuda, model: TableModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = fake.runner(model, MEAN, max_graphs=2)
    for seed in range(3):
        for tokens in range(10, 640, 64):
            batch = _batch([tokens], seed)
            for _ in range(2):
                rows = _run(runner, batch, OutputSpec()).rows[0]
                np.testing.assert_allclose(rows, _expected(model, batch), rtol=1e-4, atol=1e-5)
    assert len(runner._inputs) <= 2 * 2 + 1
    assert runner.counters.evicted > 10
    runner.close()


def test_a_lost_context_is_the_engines_death(
    fake: FakeCuda, model: TableModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "_is_fatal", lambda error: "illegal" in str(error))
    model.fail_with = RuntimeError("an illegal memory access")
    runner = fake.runner(model, MEAN)
    with pytest.raises(cuda.EngineDeadError):
        _run(runner, _batch([3]), OutputSpec())
    runner.close()
