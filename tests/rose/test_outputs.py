"""Token vectors, multi-vector and sparse outputs against `transformers` in fp32, and in any batch.

The tolerances are those of `tests.rose.test_parity`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForMaskedLM

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.errors import HotbedError
from hotbed.core.output import OutputDtype, OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.rows import RowSet
from hotbed.rose.engine import RoseEngine
from hotbed.rose.layers import sparse
from tests.core.test_ragged import with_spans
from tests.rose.test_parity import MAX_RELATIVE_ERROR, MIN_COSINE
from tests.support.checkpoints import edit_json, make_bert, make_qwen3
from tests.support.families import make_family
from tests.support.output_models import make_bge_m3, make_colbert, make_mlm, make_splade

TOKENS = OutputSpec(kind="tokens")
MULTI_VECTOR = OutputSpec(kind="multi_vector")
SPARSE = OutputSpec(kind="sparse")
IDS = [
    np.random.default_rng(n).integers(5, 200, size)
    for n, size in enumerate((1, 2, 90, 17, 16, 17, 33, 94, 5, 1))
]


def dense_sparse(rows: RowSet, vocab_size: int) -> NDArray[np.float32]:
    """Entries as one row of the vocabulary a sequence."""
    out = np.zeros((rows.num_sequences, vocab_size), dtype=np.float32)
    for row, entries in zip(out, rows.split(), strict=True):
        tokens = entries["token"][:, 0]
        assert (np.diff(tokens) > 0).all(), "ids rise"
        assert (entries["weight"] > 0).all()
        row[tokens] = entries["weight"][:, 0]
    return out


def close(got: NDArray[Any], expected: NDArray[Any]) -> bool:
    norms = np.linalg.norm(got, axis=1) * np.linalg.norm(expected, axis=1)
    cosine = (got * expected).sum(1) / norms
    error = np.linalg.norm(got - expected, axis=1) / np.linalg.norm(expected, axis=1)
    return bool(cosine.min() >= MIN_COSINE and error.max() <= MAX_RELATIVE_ERROR)


def run(engine: RoseEngine, ids: list[NDArray[Any]], *specs: OutputSpec) -> list[RowSet]:
    batch = RaggedBatch.from_sequences(ids)
    segments = [OutputSegment(0, len(ids), spec) for spec in specs]
    result = engine.step(batch, segments).wait()
    assert result.finite.all()
    return [result.row_set(i) for i in range(len(specs))]


def states_of(folder: Path) -> list[torch.Tensor]:
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return [model(input_ids=torch.from_numpy(ids)[None]).last_hidden_state[0] for ids in IDS]


def check_everywhere(
    engine: RoseEngine,
    spec: OutputSpec,
    expected: list[NDArray[Any]],
    flat: Callable[[RowSet], list[NDArray[Any]]],
) -> None:
    """In a mixed batch, alone, and permuted."""
    order = np.random.default_rng(3).permutation(len(IDS))
    alone = [flat(run(engine, [ids], spec)[0])[0] for ids in IDS]
    mixed = flat(run(engine, IDS, spec)[0])
    permuted = flat(run(engine, [IDS[i] for i in order], spec)[0])
    for got in (alone, mixed, [permuted[i] for i in np.argsort(order)]):
        assert [one.shape for one in got] == [one.shape for one in expected]
        assert close(np.concatenate(got), np.concatenate(expected))


@pytest.mark.parametrize(
    "make",
    [
        lambda f: make_bert(f, max_seq_length=None),
        make_qwen3,
        lambda f: make_family(f, "modernbert"),
        lambda f: make_family(f, "mpnet"),
    ],
    ids=["bert", "qwen3", "modernbert", "mpnet"],
)
def test_token_vectors_are_the_states_of_transformers(make: Any, tmp_path: Path) -> None:
    folder = make(tmp_path / "m")
    engine = RoseEngine.load(load_checkpoint(str(folder)), device="cpu", num_threads=1)
    check_everywhere(engine, TOKENS, [s.numpy() for s in states_of(folder)], RowSet.split)
    unit = run(engine, IDS, OutputSpec(8, normalize=True, kind="tokens"))[0]
    assert unit.rows.shape[1] == 8
    np.testing.assert_allclose(np.linalg.norm(unit.rows, axis=1), 1, rtol=1e-5)
    bits = run(engine, IDS, OutputSpec(dtype=OutputDtype.UBINARY, kind="tokens"))[0]
    states = np.concatenate([s.numpy() for s in states_of(folder)])
    clear = np.abs(states) > 1e-4
    np.testing.assert_array_equal(np.unpackbits(bits.rows, axis=1)[clear], (states >= 0)[clear])
    engine.close()


def test_bge_m3_gives_three_outputs_in_one_pass(tmp_path: Path) -> None:
    folder = make_bge_m3(tmp_path / "m")
    engine = RoseEngine.load(load_checkpoint(str(folder)), device="cpu", num_threads=1)
    assert dict(engine.info.outputs) == {
        "dense": 128, "multi_vector": 128, "sparse": engine.info.vocab_size, "tokens": 128,
    }  # fmt: skip
    colbert = load_file(folder / "colbert_linear.safetensors")
    linear = load_file(folder / "sparse_linear.safetensors")
    dense, vectors, weights = [], [], []
    for ids, states in zip(IDS, states_of(folder), strict=True):
        dense.append(F.normalize(states[0], dim=-1).numpy())
        made = F.linear(states[1:], colbert["weight"], colbert["bias"])  # the first has none
        vectors.append(F.normalize(made, dim=-1).numpy())
        of_tokens = F.linear(states, linear["weight"], linear["bias"])[:, 0].relu()
        row = np.zeros(engine.info.vocab_size, dtype=np.float32)
        np.maximum.at(row, ids, of_tokens.numpy())
        weights.append(row)
    assert (np.stack(weights) > 0).sum() > 50
    check_everywhere(engine, MULTI_VECTOR, vectors, RowSet.split)
    for got in (run(engine, IDS, SPARSE)[0], run(engine, IDS, OutputSpec(), SPARSE)[1]):
        np.testing.assert_allclose(
            dense_sparse(got, engine.info.vocab_size), np.stack(weights), rtol=1e-4, atol=1e-5
        )
    passes = []
    forward = engine.runner._model.forward  # type: ignore[attr-defined]
    engine.runner._model.forward = lambda batch: passes.append(1) or forward(batch)  # type: ignore[attr-defined]
    one, many, few = run(engine, IDS, OutputSpec(), MULTI_VECTOR, SPARSE)
    assert passes == [1]
    assert one.counts is None
    assert close(one.rows, np.stack(dense))
    assert close(many.rows, np.concatenate(vectors))
    assert many.counts is not None
    assert many.counts.tolist() == [len(ids) - 1 for ids in IDS]
    np.testing.assert_allclose(
        dense_sparse(few, engine.info.vocab_size), np.stack(weights), rtol=1e-4, atol=1e-5
    )
    engine.close()


def test_gte_multilinguals_classifier_of_tokens_gives_sparse_rows(tmp_path: Path) -> None:
    """Its files say NewForTokenClassification, which was refused, and hold that class's layer."""
    folder = make_family(tmp_path / "m", "gte", pooling="cls", prefix="new.", sharded=False)
    edit_json(
        folder / "config.json", architectures=["NewForTokenClassification"], id2label={"0": "L"}
    )
    edit_json(folder / "tokenizer_config.json", cls_token="[CLS]", eos_token="[SEP]")
    held = load_file(folder / "model.safetensors")
    made = torch.Generator().manual_seed(3)
    weight, bias = torch.randn(1, 128, generator=made) / 11, torch.randn(1, generator=made)
    held |= {"classifier.weight": weight, "classifier.bias": bias}
    save_file(held, folder / "model.safetensors")
    engine = RoseEngine.load(load_checkpoint(str(folder)), device="cpu", num_threads=1)
    assert dict(engine.info.outputs)["sparse"] == engine.info.vocab_size
    dense, sparse = run(engine, IDS, OutputSpec(normalize=False), SPARSE)
    expected = np.zeros((len(IDS), engine.info.vocab_size), dtype=np.float32)
    for row, ids, states in zip(expected, IDS, states_of(folder), strict=True):
        np.maximum.at(row, ids, F.linear(states, weight, bias)[:, 0].relu().numpy())
    assert (expected > 0).sum() > 50
    assert close(dense.rows, np.stack([states[0].numpy() for states in states_of(folder)]))
    got = dense_sparse(sparse, engine.info.vocab_size)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    engine.close()
    save_file(held | {"classifier.weight": torch.zeros(3, 128)}, folder / "model.safetensors")
    with pytest.raises(HotbedError, match="one weight a token"):
        load_checkpoint(str(folder))


def test_special_tokens_have_no_weight_in_bge_m3(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(str(make_bge_m3(tmp_path / "m")))
    assert checkpoint.sparse is not None
    assert len(checkpoint.sparse.unused_tokens) == 4
    engine = RoseEngine.load(checkpoint, device="cpu", num_threads=1)
    special = np.array(checkpoint.sparse.unused_tokens)
    rows = run(engine, [np.concatenate([special, IDS[6], special])] * 3, SPARSE)[0]
    assert rows.counts is not None
    assert rows.counts[0] > 0
    assert not np.isin(rows.rows["token"], special).any()
    engine.close()


MLM = ["bert", "distilbert", "roberta", "xlm-roberta", "camembert", "mpnet", "modernbert"]


@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize("model_type", MLM)
def test_splade_is_the_largest_logit_of_transformers(
    model_type: str, untied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_mlm(tmp_path / "m", model_type, untied=untied)
    # Logits in several pieces, whose borders lie within sequences.
    monkeypatch.setattr(sparse, "_MAX_LOGITS_CPU", 24 * 200)
    checkpoint = load_checkpoint(str(folder), task="sparse")
    engine = RoseEngine.load(checkpoint, device="cpu", num_threads=1)
    assert [kind for kind, _ in engine.info.outputs] == ["sparse", "tokens"]
    model, loading = AutoModelForMaskedLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert not loading["missing_keys"], "the reference has random weights of its own"
    expected = []
    with torch.inference_mode():
        for ids in IDS:
            logits = model.eval()(input_ids=torch.from_numpy(ids)[None]).logits[0]
            expected.append(logits.relu().log1p().amax(0, keepdim=True).numpy())
    check_everywhere(
        engine,
        SPARSE,
        expected,
        lambda rows: [row[None] for row in dense_sparse(rows, engine.info.vocab_size)],
    )
    engine.close()


def test_a_bare_masked_language_model_stays_a_dense_embedder_unless_told(tmp_path: Path) -> None:
    folder = make_mlm(tmp_path / "m", "bert")
    checkpoint = load_checkpoint(str(folder))
    assert [kind for kind, _ in checkpoint.outputs] == ["dense", "tokens"]
    assert checkpoint.pooling.pooling == "mean"
    with pytest.raises(HotbedError, match="architectures"):
        load_checkpoint(str(make_bert(tmp_path / "b", sentence_transformers=False)), task="sparse")
    with pytest.raises(HotbedError, match="modules is"):
        load_checkpoint(str(make_bert(tmp_path / "c")), task="sparse")


def test_two_logarithms_where_the_pooling_says_so(tmp_path: Path) -> None:
    once = make_splade(tmp_path / "once")
    twice = make_splade(tmp_path / "twice", activation_function="log1p_relu")
    made = []
    for folder in (once, twice):
        engine = RoseEngine.load(load_checkpoint(str(folder)), device="cpu", num_threads=1)
        made.append(dense_sparse(run(engine, IDS, SPARSE)[0], engine.info.vocab_size))
        engine.close()
    np.testing.assert_allclose(np.log1p(made[0]), made[1], rtol=1e-5, atol=1e-6)


def test_the_largest_logit_is_the_same_by_segments() -> None:
    """What runs on a GPU, on a CPU: torch takes the same operation there."""
    logits = torch.randn(50, 40, generator=torch.Generator().manual_seed(0))
    logits[7, 3] = float("nan")
    cu = torch.tensor([0, 8, 8 + 30, 60, 61], dtype=torch.int32)
    for start in (0, 5):
        plain, segments = torch.zeros(4, 40), torch.zeros(4, 40)
        sparse.keep_largest(plain, logits, (cu - start).tolist())
        sparse.keep_largest_by_segments(segments, logits, cu - start)
        torch.testing.assert_close(plain, segments, equal_nan=True)
        assert plain.isnan().sum() == 1


def test_segments_of_a_step_get_their_own_output_and_spans_may_be_among_them(
    tmp_path: Path,
) -> None:
    engine = RoseEngine.load(
        load_checkpoint(str(make_bert(tmp_path / "m", max_seq_length=None))),
        device="cpu",
        num_threads=1,
    )
    ids = [one.tolist() for one in IDS]
    batch = with_spans(
        (ids[3], [(0, 3), (3, 9)]), (ids[4], [(0, len(ids[4]))]), (ids[5], [(0, len(ids[5]))])
    )
    segments = [
        OutputSegment(0, 2, OutputSpec()),
        OutputSegment(2, 3, TOKENS),
        OutputSegment(3, 4, OutputSpec(8)),
        OutputSegment(3, 4, TOKENS),
    ]
    result = engine.step(batch, segments).wait()
    assert result.counts is not None
    assert [None if c is None else c.tolist() for c in result.counts] == [None, [16], None, [17]]
    for segment, index in ((1, 4), (3, 5)):
        alone = run(engine, [IDS[index]], TOKENS)[0]
        np.testing.assert_allclose(result.rows[segment], alone.rows, atol=1e-5)
    assert [rows.shape for rows in result.rows] == [(2, 64), (16, 64), (1, 8), (17, 64)]
    assert result.finite.shape == (4,)
    engine.close()


def test_only_the_sequence_that_is_not_finite_is_marked(tmp_path: Path) -> None:
    folder = make_bge_m3(tmp_path / "m")
    engine = RoseEngine.load(load_checkpoint(str(folder)), device="cpu", num_threads=1)
    forward = engine.runner._model.forward  # type: ignore[attr-defined]

    def poisoned(batch: Any) -> torch.Tensor:
        states = forward(batch).clone()
        states[batch.token_ids == 150] = float("inf")
        return states

    engine.runner._model.forward = poisoned  # type: ignore[attr-defined]
    ids = [np.array([5, 6, 7]), np.array([5, 150, 7]), np.array([9, 10])]
    for spec in (TOKENS, MULTI_VECTOR, SPARSE, OutputSpec(dtype=OutputDtype.INT8, kind="tokens")):
        batch = RaggedBatch.from_sequences(ids)
        result = engine.step(batch, [OutputSegment(0, 3, spec)]).wait()
        assert result.finite.tolist() == [True, False, True], spec
    engine.close()


def test_an_output_that_the_model_has_not_is_refused_by_the_engine(tmp_path: Path) -> None:
    engine = RoseEngine.load(load_checkpoint(str(make_bert(tmp_path / "m"))), device="cpu")
    batch = RaggedBatch.from_sequences([[1, 2]])
    with pytest.raises(HotbedError, match="no sparse output; its outputs are: dense, tokens"):
        engine.step(batch, [OutputSegment(0, 1, SPARSE)])
    engine.close()
    colbert = load_checkpoint(str(make_colbert(tmp_path / "c")))
    engine = RoseEngine.load(colbert, device="cpu")
    with pytest.raises(HotbedError, match="no dense output; its outputs are: multi_vector, tokens"):
        engine.step(batch, [OutputSegment(0, 1, OutputSpec())])
    assert engine.step(batch).wait().rows[0].shape == (2, 32)
    engine.close()
