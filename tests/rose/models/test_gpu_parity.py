"""The engine on a card in BF16 against the engine on the CPU in fp32, row by row.

Tolerance: BF16 rounds each state to 8 bits; two layers of it move a row of these checkpoints to a
cosine of 0.9999 (measured with the CPU's own BF16, 2026-11-30). A wrong mask, position, scale or
weight moves it below 0.99.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.engine import RoseEngine
from tests.core.test_ragged import with_spans
from tests.rose.kernels.devices import require_compiled
from tests.support.checkpoints import make_bert, make_qwen3
from tests.support.families import make_family

pytestmark = pytest.mark.gpu

MIN_COSINE = 0.999
MAX_RELATIVE_ERROR = 0.05
# T5 does not scale its scores: with random weights they are large, and so is what BF16 rounds off.
# transformers' own T5 with a gated MLP in BF16 on a CPU: 0.9973 of a text's mean, 0.979 of a state,
# which a span may be (2026-12-01).
MIN_COSINE_OF = {"t5 gated": 0.98}
# A text alone goes through GEMMs of other sizes, whose sums round elsewhere.
MAX_ALONE_ERROR = 0.02

WIDE = {"heads": 4, "kv_heads": 2, "head_dim": 128, "hidden": 256}
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "bert mean": (make_bert, {"pooling": "mean"}),
    "bert cls": (make_bert, {"pooling": "cls"}),
    "bert gelu_new": (make_bert, {"hidden_act": "gelu_new"}),
    "bert relu": (make_bert, {"hidden_act": "relu"}),
    "bert with dense modules": (
        make_bert,
        {"dense": [(96, "activation.Tanh", True), (48, "linear.Identity", False)]},
    ),
    "bert head dim 64": (make_bert, {"hidden": 384, "heads": 6, "intermediate": 1536}),
    "qwen3 causal last": (make_qwen3, WIDE),
    "qwen3 bidirectional mean": (make_qwen3, WIDE | {"causal": False}),
    "xlm-roberta": (make_family, {"config": "xlm-roberta"}),
    "electra": (make_family, {"config": "electra", "pooling": "cls"}),
    "distilbert": (make_family, {"config": "distilbert"}),
    "mpnet": (make_family, {"config": "mpnet"}),
    "deberta": (make_family, {"config": "deberta-v2"}),
    "jina_bert": (make_family, {"config": "jina_bert", "num_attention_heads": 6}),
    "t5": (make_family, {"config": "t5"}),
    "t5 gated": (make_family, {"config": "t5", "feed_forward_proj": "gated-gelu"}),
    "modernbert": (make_family, {"config": "modernbert"}),
    "nomic": (make_family, {"config": "nomic_bert"}),
    "nomic dynamic": (
        make_family,
        {
            "config": "nomic_bert",
            "max_position_embeddings": 48,
            "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1000.0},
        },
    ),
    "gte": (make_family, {"config": "gte"}),
    "embeddinggemma": (
        make_family,
        {
            "config": "gemma3_text",
            "tokenizer": "bpe",
            "head_dim": 256,
            "query_pre_attn_scalar": 256,
            "dense": [(512, "linear.Identity", False), (128, "linear.Identity", False)],
        },
    ),
    "llama 3.1": (
        make_family,
        {
            "config": "llama",
            "tokenizer": "bpe",
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 48,
            },
        },
    ),
    "llama last": (make_family, {"config": "llama", "tokenizer": "bpe", "pooling": "last"}),
    "qwen2 bidirectional": (
        make_family,
        {"config": "qwen2", "tokenizer": "bpe", "is_causal": False},
    ),
    "mistral": (make_family, {"config": "mistral", "tokenizer": "bpe", "pooling": "last"}),
    "pplx": (make_qwen3, WIDE | {"pplx": True}),
}
RAW = OutputSpec(normalize=False)


@pytest.fixture(scope="module", params=MODELS)
def engines(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RoseEngine, RoseEngine]]:
    """(on the CPU, on the card) for one checkpoint."""
    require_compiled()
    make, options = MODELS[request.param]
    kind = options.get("config", "bert")
    if kind not in (*CONFIG_MAPPING_NAMES, "jina_bert"):
        pytest.skip(f"this transformers ({transformers.__version__}) does not know {kind!r}")
    folder: Path = make(tmp_path_factory.mktemp("models") / "m", **options)
    checkpoint = load_checkpoint(str(folder))
    cpu = RoseEngine.load(checkpoint, device="cpu", num_threads=1)
    card = RoseEngine.load(checkpoint, device="cuda")
    yield cpu, card
    card.close()
    cpu.close()


def _sequences(engine: RoseEngine, lengths: list[int], seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.integers(0, engine.info.vocab_size, n) for n in lengths]


def _rows(engine: RoseEngine, sequences: list[np.ndarray], spec: OutputSpec = RAW) -> np.ndarray:
    batch = RaggedBatch.from_sequences(sequences)
    result = engine.step(batch, [OutputSegment(0, len(sequences), spec)]).wait()
    assert result.finite.all()
    return result.rows[0]


def _error(got: np.ndarray, expected: np.ndarray) -> float:
    """Largest norm of a row's error, relative to the row's norm."""
    return float((np.linalg.norm(got - expected, axis=1) / np.linalg.norm(expected, axis=1)).max())


def _min_cosine(got: np.ndarray, expected: np.ndarray) -> float:
    norms = np.linalg.norm(got, axis=1) * np.linalg.norm(expected, axis=1)
    return float(((got * expected).sum(axis=1) / norms).min())


Same = Callable[[np.ndarray, np.ndarray], None]


@pytest.fixture
def assert_same(request: pytest.FixtureRequest) -> Same:
    """Holds rows to those expected, up to what BF16 costs the model."""
    least = MIN_COSINE_OF.get(request.node.callspec.params["engines"], MIN_COSINE)
    # Unit vectors of cosine c lie (2 - 2 c)^1/2 apart.
    most = max(MAX_RELATIVE_ERROR, (2 - 2 * least) ** 0.5)

    def check(got: np.ndarray, expected: np.ndarray) -> None:
        assert np.isfinite(got).all()
        assert _min_cosine(got, expected) >= least
        assert _error(got, expected) <= most

    return check


def test_rows_equal_the_cpus(engines: tuple[RoseEngine, RoseEngine], assert_same: Same) -> None:
    """Three times each, so that the eager, the captured and the replayed step are all seen."""
    cpu, card = engines
    limit = cpu.info.max_tokens
    for lengths in ([1], [limit], [1, 2, limit - 1, limit, 17, 17, limit // 2, 1], [16] * 32):
        for seed in range(3):
            sequences = _sequences(cpu, lengths, seed)
            assert_same(_rows(card, sequences), _rows(cpu, sequences))


def test_a_replay_takes_other_lengths(
    engines: tuple[RoseEngine, RoseEngine], assert_same: Same
) -> None:
    """All of one token bucket and one sequence bucket."""
    cpu, card = engines
    for lengths in ([40, 9, 1], [17, 17, 17], [1, 1, 48], [50, 2, 3], [30, 30, 1]):
        sequences = _sequences(cpu, lengths, seed=sum(lengths))
        assert_same(_rows(card, sequences), _rows(cpu, sequences))


def test_a_text_alone_equals_the_same_text_in_a_batch(
    engines: tuple[RoseEngine, RoseEngine],
) -> None:
    cpu, card = engines
    sequences = _sequences(cpu, [3, 60, 17, 1, 33])
    together = _rows(card, sequences)
    alone = np.concatenate([_rows(card, [s]) for s in sequences])
    assert _error(alone, together) <= MAX_ALONE_ERROR


def test_the_default_form_is_the_models(
    engines: tuple[RoseEngine, RoseEngine], assert_same: Same
) -> None:
    cpu, card = engines
    sequences = _sequences(cpu, [5, 20])
    default = OutputSpec()
    assert_same(_rows(card, sequences, default), _rows(cpu, sequences, default))
    if card.info.normalize:
        norms = np.linalg.norm(_rows(card, sequences, default), axis=1)
        np.testing.assert_allclose(norms, 1.0, atol=1e-5)


def test_the_same_step_gives_the_same_bits(engines: tuple[RoseEngine, RoseEngine]) -> None:
    _, card = engines
    sequences = _sequences(card, [5, 20, 7])
    _rows(card, sequences)
    first = _rows(card, sequences)
    for _ in range(5):
        np.testing.assert_array_equal(_rows(card, sequences), first)


def test_rows_of_chunks_equal_the_cpus(
    engines: tuple[RoseEngine, RoseEngine], assert_same: Same
) -> None:
    """Eager, captured, replayed with other spans."""
    cpu, card = engines
    if cpu.info.pooling != "mean":
        pytest.skip("spans are for models that pool by mean")
    for seed in range(4):
        random = np.random.default_rng(seed)
        documents = []
        for ids in _sequences(cpu, [40, 7, 60], seed):
            cuts = np.sort(random.integers(0, len(ids) + 1, 6)).tolist()
            documents.append((ids.tolist(), list(zip(cuts[::2], cuts[1::2], strict=True))))
        batch = with_spans(*documents)
        empty = [start == stop for _, spans in documents for start, stop in spans]
        segment = OutputSegment(0, batch.num_rows, RAW)
        got, expected = (e.step(batch, [segment]).wait().rows[0] for e in (card, cpu))
        full = [i for i, is_empty in enumerate(empty) if not is_empty]
        assert_same(got[full], expected[full])
        # Zeros, or what the dense modules behind the pooling make of them.
        np.testing.assert_allclose(got[empty], expected[empty], rtol=1e-5, atol=1e-6)
