"""Models that score on a card in BF16 against the CPU in fp32, logit by logit.

Tolerance: BF16 moves the logits of these checkpoints by up to 1.6 % of their largest (measured with
the CPU's own BF16, 2026-11-30). A lost token type, a wrong token or head moves them by over 20 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.engine import RoseEngine
from tests.rose.kernels.devices import require_compiled
from tests.support.scorers import make_bert_scorer, make_qwen3_classifier, make_qwen3_reranker

pytestmark = pytest.mark.gpu

MAX_ERROR = 0.05
WIDE = {"heads": 4, "kv_heads": 2, "head_dim": 128, "hidden": 256}
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "bert": (make_bert_scorer, {"hidden": 128}),
    "bert, 3 labels": (
        make_bert_scorer,
        {"hidden": 384, "heads": 6, "intermediate": 1536, "labels": 3},
    ),
    "qwen3, yes and no": (make_qwen3_reranker, WIDE),
    "qwen3, 3 labels": (make_qwen3_classifier, {**WIDE, "labels": 3}),
}


@pytest.fixture(scope="module", params=MODELS)
def engines(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RoseEngine, RoseEngine]]:
    """(on the CPU, on the card) for one checkpoint."""
    require_compiled()
    make, options = MODELS[request.param]
    folder: Path = make(tmp_path_factory.mktemp("models") / "reranker", **options)
    checkpoint = load_checkpoint(str(folder))
    cpu = RoseEngine.load(checkpoint, device="cpu", num_threads=1)
    card = RoseEngine.load(checkpoint, device="cuda")
    yield cpu, card
    card.close()
    cpu.close()


def pairs(engine: RoseEngine, lengths: list[int], seed: int) -> RaggedBatch:
    random = np.random.default_rng(seed)
    batch = RaggedBatch.from_sequences(
        [random.integers(5, engine.info.vocab_size, n, dtype=np.int32) for n in lengths]
    )
    if engine.info.token_types < 2:
        return batch
    starts = np.array([random.integers(0, n + 1) for n in lengths], dtype=np.int32)
    return RaggedBatch(batch.token_ids, batch.cu_seqlens, pair_starts=starts)


def scored(
    engine: RoseEngine, batch: RaggedBatch
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(logits of the first half, scores of the second) from one step."""
    half, count = batch.num_sequences // 2, batch.num_sequences
    segments = [
        OutputSegment(0, half, OutputSpec(raw_scores=True)),
        OutputSegment(half, count, OutputSpec()),
    ]
    result = engine.step(batch, segments).wait()
    assert result.finite.all()
    return result.rows[0], result.rows[1]


@pytest.mark.parametrize("lengths", [[100, 100], [1, 2, 17, 100, 128, 3], [64] * 8])
def test_logits_and_scores_are_the_cpus(
    engines: tuple[RoseEngine, RoseEngine], lengths: list[int]
) -> None:
    """Eager, captured and replayed: each step with other pairs."""
    cpu, card = engines
    many = pairs(cpu, list(range(1, 33)), seed=0)
    scale = max(float(np.abs(part).max()) for part in scored(cpu, many))
    for seed in range(4):
        batch = pairs(cpu, lengths, seed)
        (logits, scores), (card_logits, card_scores) = scored(cpu, batch), scored(card, batch)
        assert np.abs(card_logits - logits).max() <= MAX_ERROR * scale
        # No activation is steeper than its logits.
        assert np.abs(card_scores - scores).max() <= MAX_ERROR * scale
