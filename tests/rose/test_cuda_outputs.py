"""Outputs besides dense rows by the CUDA runner, on a fake of the device, eager and replayed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hotbed.core.output import OutputDtype, OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.graphs import CaptureMode
from hotbed.rose.layers.dense import Dense
from hotbed.rose.layers.linear import Linear
from hotbed.rose.layers.sparse import MlmHead, TokenWeights
from hotbed.rose.outputs import MultiVector, Outputs
from hotbed.rose.recipe import Recipe
from tests.core.test_ragged import with_spans

pytest.importorskip("hotbed.rose.kernels.pool", reason="Triton is not installed")

from tests.rose.fake_cuda import VOCABULARY, WIDTH, FakeCuda, TableModel

TOKENS = OutputSpec(kind="tokens")
MULTI_VECTOR = OutputSpec(kind="multi_vector")
SPARSE = OutputSpec(kind="sparse")


def _outputs(first: str = "dense", *, mlm: bool = False) -> Outputs:
    generator = torch.Generator().manual_seed(5)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    multi_vector = MultiVector((Dense(random(8, WIDTH), random(8), "none"),), True, True)
    if not mlm:
        weights = TokenWeights(random(1, WIDTH), random(1))
        return Outputs(first, multi_vector, weights, (3,))  # type: ignore[arg-type]
    head = MlmHead(
        Linear(random(WIDTH, WIDTH), random(WIDTH)),
        (torch.ones(WIDTH), torch.zeros(WIDTH), 1e-5),
        Linear(random(VOCABULARY, WIDTH), random(VOCABULARY)),
        num_logs=1,
    )
    return Outputs(first, None, head)  # type: ignore[arg-type]


def _batch(lengths: list[int], seed: int) -> RaggedBatch:
    random = np.random.default_rng(seed)
    return RaggedBatch.from_sequences([random.integers(0, VOCABULARY, n) for n in lengths])


def _states(model: TableModel, batch: RaggedBatch) -> list[torch.Tensor]:
    made = []
    for i in range(batch.num_sequences):
        ids = torch.from_numpy(batch.sequence(i).astype(np.int64))
        made.append(model.table[ids] + torch.arange(len(ids))[:, None])
    return made


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda(monkeypatch)


@pytest.mark.parametrize("mode", CaptureMode)
def test_every_output_is_right_beside_the_others_eager_and_replayed(
    fake: FakeCuda, mode: CaptureMode
) -> None:
    model, outputs = TableModel(), _outputs()
    runner = fake.runner(model, Recipe("mean", False, "none"), capture=mode, outputs=outputs)
    assert outputs.multi_vector is not None
    layer = outputs.multi_vector.dense[0]
    kept = []
    for seed in range(12):
        batch = _batch([5, 9, 1, 30] if seed % 2 else [17, 60], seed)
        n = batch.num_sequences
        segments = [
            OutputSegment(0, n, OutputSpec()),
            OutputSegment(0, n, TOKENS),
            OutputSegment(0, 1, OutputSpec(8, kind="tokens", dtype=OutputDtype.FLOAT16)),
            OutputSegment(1, n, MULTI_VECTOR),
            OutputSegment(1, n, SPARSE),
        ]
        kept.append((batch, runner.submit(batch, segments).result(timeout=20)))
    for batch, result in kept:  # rows outlive later steps
        assert result.finite.all()
        assert result.counts is not None
        assert result.counts[0] is None
        states = _states(model, batch)
        means = torch.stack([s.mean(0) for s in states]).numpy()
        np.testing.assert_allclose(result.rows[0], means, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(result.rows[1], torch.cat(states).numpy())
        np.testing.assert_array_equal(result.rows[2], states[0][:, :8].half().numpy())
        vectors = [
            torch.nn.functional.normalize(layer(s)[0][1:], dim=-1).numpy() for s in states[1:]
        ]
        np.testing.assert_allclose(result.rows[3], np.concatenate(vectors), atol=1e-5)
        assert result.counts[3] is not None
        assert result.counts[3].tolist() == (batch.lengths[1:] - 1).tolist()
        for entries, ids, s in zip(
            result.row_set(4).split(),
            [batch.sequence(i) for i in range(1, batch.num_sequences)],
            states[1:],
            strict=True,
        ):
            assert isinstance(outputs.sparse, TokenWeights)
            weights = outputs.sparse(s)[0].numpy()
            expected: dict[int, float] = {}
            for token, weight in zip(ids.tolist(), weights.tolist(), strict=True):
                if weight > 0 and token != 3:
                    expected[token] = max(weight, expected.get(token, 0.0))
            got = dict(zip(entries["token"][:, 0].tolist(), entries["weight"][:, 0], strict=True))
            assert got == pytest.approx(expected, rel=1e-4, abs=1e-5)
    if mode is CaptureMode.LAZY:
        assert runner.counters.replayed >= 6
    runner.close()


def test_a_splade_warms_up_with_what_it_gives_and_its_rows_are_right(fake: FakeCuda) -> None:
    model, outputs = TableModel(), _outputs("sparse", mlm=True)
    runner = fake.runner(
        model, Recipe("cls", False, "none"), capture=CaptureMode.START, outputs=outputs
    )
    runner.warm_up()
    assert all(config.keeps_states for config in runner._inputs)
    batch = _batch([40, 3, 21], 1)
    result = runner.submit(batch, [OutputSegment(0, 3, SPARSE)]).result(timeout=20)
    head = outputs.sparse
    assert isinstance(head, MlmHead)
    for entries, states in zip(result.row_set(0).split(), _states(model, batch), strict=True):
        row = head(states, torch.tensor([0, len(states)]), [0, len(states)])[0].numpy()
        np.testing.assert_array_equal(entries["token"][:, 0], np.flatnonzero(row > 0))
        np.testing.assert_allclose(entries["weight"][:, 0], row[row > 0], rtol=1e-4, atol=1e-5)
    runner.close()


def test_steps_of_dense_rows_alone_keep_no_states(fake: FakeCuda) -> None:
    model = TableModel()
    runner = fake.runner(model, Recipe("mean", False, "none"), outputs=_outputs())
    batch = _batch([4, 5], 0)
    runner.submit(batch, [OutputSegment(0, 2, OutputSpec())]).result(timeout=20)
    assert [config.keeps_states for config in runner._inputs] == [False]
    runner.submit(batch, [OutputSegment(0, 2, TOKENS)]).result(timeout=20)
    assert [config.keeps_states for config in runner._inputs] == [False, True]
    runner.close()


def test_tokens_beside_spans(fake: FakeCuda) -> None:
    model = TableModel()
    runner = fake.runner(model, Recipe("mean", False, "none"), outputs=_outputs())
    batch = with_spans(([1, 2, 3], [(0, 1), (1, 3)]), ([4, 5], [(0, 2)]), ([6], [(0, 1)]))
    segments = [OutputSegment(0, 2, OutputSpec()), OutputSegment(2, 4, TOKENS)]
    result = runner.submit(batch, segments).result(timeout=20)
    states = _states(model, batch)
    np.testing.assert_array_equal(result.rows[1], torch.cat(states[1:]).numpy())
    np.testing.assert_allclose(result.rows[0][1], states[0][1:].mean(0).numpy(), rtol=1e-5)
    runner.close()


def test_a_token_that_is_not_finite_marks_its_sequence(fake: FakeCuda) -> None:
    model = TableModel()
    model.table[7] = float("inf")
    runner = fake.runner(model, Recipe("mean", False, "none"), outputs=_outputs())
    batch = RaggedBatch.from_sequences([[1, 2], [7, 3], [4]])
    for spec in (TOKENS, MULTI_VECTOR, SPARSE):
        result = runner.submit(batch, [OutputSegment(0, 3, spec)]).result(timeout=20)
        assert result.finite.tolist() == [True, False, True]
    runner.close()
