"""Models that score on the GPU's runner, without a card: eager, captured and replayed steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.cuda import CudaRunner, CudaSettings
from hotbed.rose.layers.head import Head
from hotbed.rose.recipe import ScoreRecipe
from tests.rose.fake_cuda import VOCABULARY, WIDTH, FakeCuda, TableModel

OFFSET, LABELS = 512, 3
RAW = OutputSpec(raw_scores=True)
WEIGHT = torch.randn(LABELS, WIDTH, generator=torch.Generator().manual_seed(1)) / 100


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CudaRunner:
    FakeCuda(monkeypatch)
    return CudaRunner(
        TableModel(),
        ScoreRecipe("last", Head((WEIGHT, None)), "softmax"),
        device=torch.device("cpu"),
        settings=CudaSettings(),
        by_length=False,
        max_tokens=128,
        pair_offset=OFFSET,
    )


def batch_of(lengths: list[int], starts: list[int] | None) -> RaggedBatch:
    random = np.random.default_rng(sum(lengths))
    ids = [random.integers(0, VOCABULARY, n, dtype=np.int32) for n in lengths]
    batch = RaggedBatch.from_sequences(ids)
    if starts is None:
        return batch
    return RaggedBatch(
        batch.token_ids, batch.cu_seqlens, pair_starts=np.array(starts, dtype=np.int32)
    )


def logits_of(batch: RaggedBatch) -> NDArray[np.float32]:
    """By hand: the table's row and the position of each sequence's last token."""
    table, rows = TableModel().table, []
    for i in range(batch.num_sequences):
        ids = batch.sequence(i)
        position = len(ids) - 1
        if batch.pair_starts is not None and position >= batch.pair_starts[i]:
            position += OFFSET
        rows.append(table[int(ids[-1])] + position)
    logits: NDArray[np.float32] = (torch.stack(rows) @ WEIGHT.T).numpy()
    return logits


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    exp = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores: NDArray[Any] = exp / exp.sum(axis=1, keepdims=True)
    return scores


@pytest.mark.parametrize("starts", [None, [2, 30, 0, 17]])
def test_every_kind_of_step_gives_scores_and_logits(
    runner: CudaRunner, starts: list[int] | None
) -> None:
    batch = batch_of([5, 30, 1, 17], starts)
    logits = logits_of(batch)
    segments = [OutputSegment(0, 1, OutputSpec()), OutputSegment(1, 3, RAW)]
    segments.append(OutputSegment(3, 4, OutputSpec(LABELS, normalize=False)))
    for _ in range(3):  # eager, captured, replayed
        result = runner.submit(batch, segments).result()
        first, raw, last = result.rows
        np.testing.assert_allclose(first, softmax(logits)[:1], rtol=1e-5)
        np.testing.assert_allclose(raw, logits[1:3], rtol=1e-5)
        np.testing.assert_allclose(last, softmax(logits)[3:], rtol=1e-5)
        assert result.finite.tolist() == [True] * 4
    assert runner.counters.replayed >= 1
    runner.close()


def test_a_replay_with_pairs_forgets_those_of_the_step_before(runner: CudaRunner) -> None:
    """One configuration's static inputs serve steps with other pairs, or none."""
    whole = [OutputSegment(0, 2, RAW)]
    for starts in ([3, 3], None, [9, 9], [4, 7], None):
        batch = batch_of([10, 10], starts)
        found = runner.submit(batch, whole).result().rows[0]
        np.testing.assert_allclose(found, logits_of(batch), rtol=1e-5)
    runner.close()


def test_a_sequence_with_nan_is_flagged_and_no_other(runner: CudaRunner) -> None:
    model: Any = runner._model
    model.table[7] = float("nan")
    batch = RaggedBatch.from_sequences([[1, 2], [3, 7], [7, 4]])
    result = runner.submit(batch, [OutputSegment(0, 3, OutputSpec())]).result()
    assert result.finite.tolist() == [True, False, True]
    runner.close()
