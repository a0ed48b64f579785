"""Outputs besides dense rows on a card in BF16 against the CPU in fp32, eager and replayed.

Tolerance: that of `tests.rose.models.test_gpu_parity` for vectors. A sparse row is compared as one
row of the vocabulary: its largest weights carry it, and ids near 0 may come and go.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.output import OutputDtype, OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import StepResult
from hotbed.rose.engine import RoseEngine
from tests.rose.kernels.devices import require_compiled
from tests.rose.models.test_gpu_parity import MIN_COSINE
from tests.rose.test_outputs import dense_sparse
from tests.support.checkpoints import make_qwen3
from tests.support.output_models import make_bge_m3, make_colbert, make_mlm

pytestmark = pytest.mark.gpu

# A cosine of MIN_COSINE, as the length of the difference of two rows of length 1. A sparse weight
# is one product of one state: no sum over many makes its rounding small (H200: up to 0.051).
MAX_DIFFERENCE = (2 - 2 * MIN_COSINE) ** 0.5
MAX_SPARSE_DIFFERENCE = 0.1
LENGTHS = ([7], [5, 90, 1, 33, 17, 64], [12] * 40, [90] * 20)
MODELS: dict[str, tuple[Any, str, tuple[OutputSpec, ...]]] = {
    "bge-m3": (
        make_bge_m3,
        "auto",
        (OutputSpec(), OutputSpec(kind="sparse"), OutputSpec(kind="multi_vector")),
    ),
    "colbert": (
        make_colbert,
        "auto",
        (OutputSpec(kind="multi_vector"), OutputSpec(8, OutputDtype.FLOAT16, kind="tokens")),
    ),
    "splade bert": (lambda f: make_mlm(f, "bert"), "sparse", (OutputSpec(kind="sparse"),)),
    "splade distilbert": (
        lambda f: make_mlm(f, "distilbert"),
        "sparse",
        (OutputSpec(kind="sparse"), OutputSpec(kind="tokens")),
    ),
    "splade modernbert": (
        lambda f: make_mlm(f, "modernbert"),
        "sparse",
        (OutputSpec(kind="sparse"),),
    ),
    "qwen3 tokens": (
        lambda f: make_qwen3(f, heads=4, kv_heads=2, head_dim=128, hidden=256),
        "auto",
        (OutputSpec(kind="tokens", normalize=True), OutputSpec()),
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def loaded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RoseEngine, RoseEngine, tuple[OutputSpec, ...]]]:
    require_compiled()
    make, task, specs = MODELS[request.param]
    folder: Path = make(tmp_path_factory.mktemp("outputs") / "m")
    checkpoint = load_checkpoint(str(folder), task=task)  # type: ignore[arg-type]
    cpu = RoseEngine.load(checkpoint, device="cpu", num_threads=1)
    card = RoseEngine.load(checkpoint, device="cuda")
    yield cpu, card, specs
    card.close()
    cpu.close()


def _run(engine: RoseEngine, batch: RaggedBatch, specs: tuple[OutputSpec, ...]) -> StepResult:
    segments = [OutputSegment(0, batch.num_sequences, spec) for spec in specs]
    return engine.step(batch, segments).wait()


def _flat(result: StepResult, index: int, spec: OutputSpec, vocab_size: int) -> np.ndarray:
    rows = result.row_set(index)
    if spec.kind == "sparse":
        return dense_sparse(rows, vocab_size)
    return rows.rows.astype(np.float32)


def _differ(rows: np.ndarray, expected: np.ndarray) -> float:
    """The largest error of a row, as a share of its length; a text of few ids may have no sparse
    weight at all, so lengths count as 1 at least."""
    lengths = np.maximum(np.linalg.norm(expected, axis=1), 1)
    return float((np.linalg.norm(rows - expected, axis=1) / lengths).max())


def test_outputs_equal_those_of_the_cpu_eager_and_replayed(
    loaded: tuple[RoseEngine, RoseEngine, tuple[OutputSpec, ...]],
) -> None:
    cpu, card, specs = loaded
    random = np.random.default_rng(0)
    vocab_size = cpu.info.vocab_size
    for lengths in LENGTHS:
        batch = RaggedBatch.from_sequences([random.integers(5, vocab_size, n) for n in lengths])
        expected = _run(cpu, batch, specs)
        before = card.counters()["replayed"]
        for _ in range(4):  # eager, captured, replayed
            got = _run(card, batch, specs)
            assert got.finite.all()
            for index, spec in enumerate(specs):
                ours = _flat(got, index, spec, vocab_size)
                theirs = _flat(expected, index, spec, vocab_size)
                assert ours.shape == theirs.shape
                most = MAX_SPARSE_DIFFERENCE if spec.kind == "sparse" else MAX_DIFFERENCE
                assert _differ(ours, theirs) <= most, (lengths, spec)
        assert card.counters()["replayed"] > before


def test_steps_in_flight_do_not_mix(
    loaded: tuple[RoseEngine, RoseEngine, tuple[OutputSpec, ...]],
) -> None:
    """Twenty steps enqueued before the first is waited for: pinned memory is used again."""
    _, card, specs = loaded
    random = np.random.default_rng(1)
    batches = [
        RaggedBatch.from_sequences(
            [random.integers(5, card.info.vocab_size, n) for n in LENGTHS[i % len(LENGTHS)]]
        )
        for i in range(20)
    ]
    alone = [_run(card, batch, specs) for batch in batches]
    segments = [
        [OutputSegment(0, batch.num_sequences, spec) for spec in specs] for batch in batches
    ]
    pending = [card.step(b, s) for b, s in zip(batches, segments, strict=True)]
    for first, handle in zip(alone, pending, strict=True):
        again = handle.wait()
        for index, spec in enumerate(specs):
            one = _flat(first, index, spec, card.info.vocab_size)
            other = _flat(again, index, spec, card.info.vocab_size)
            assert _differ(one, other) <= MAX_DIFFERENCE
