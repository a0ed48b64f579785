"""The engine's contract: order, segments, isolation from pad rows, non-finite rows, closing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.errors import HotbedError
from hotbed.core.output import OutputDtype, OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import EngineDeadError
from hotbed.rose import batch as batch_module
from hotbed.rose.attention.select import AttentionSettings
from hotbed.rose.engine import RoseEngine
from tests.support.checkpoints import make_bert, save_tensors
from tests.support.families import make_family


@pytest.fixture(scope="module", params=["bert", "qwen3", "pplx"])
def engine(request: pytest.FixtureRequest) -> Iterator[RoseEngine]:
    folder: Path = request.getfixturevalue(f"{request.param}_folder")
    engine = RoseEngine.load(load_checkpoint(str(folder)), num_threads=1)
    yield engine
    engine.close()


def _batch(engine: RoseEngine, lengths: list[int], seed: int = 0) -> RaggedBatch:
    random = np.random.default_rng(seed)
    return RaggedBatch.from_sequences(
        [random.integers(0, engine.info.vocab_size, n) for n in lengths]
    )


def _rows(engine: RoseEngine, batch: RaggedBatch) -> np.ndarray:
    return engine.step(batch).wait().rows[0]


LENGTHS = [1, 2, 63, 64, 7, 7, 30, 1, 12]


def test_a_text_alone_equals_the_same_text_in_a_batch(engine: RoseEngine) -> None:
    batch = _batch(engine, LENGTHS)
    together = _rows(engine, batch)
    for i in range(batch.num_sequences):
        alone = _rows(engine, batch.slice(i, i + 1))[0]
        np.testing.assert_allclose(alone, together[i], atol=1e-6, rtol=1e-5)


def test_permuting_the_batch_permutes_the_rows(engine: RoseEngine) -> None:
    batch = _batch(engine, LENGTHS)
    order = np.random.default_rng(1).permutation(batch.num_sequences)
    permuted = RaggedBatch.from_sequences([batch.sequence(int(i)) for i in order])
    np.testing.assert_allclose(
        _rows(engine, permuted), _rows(engine, batch)[order], atol=1e-6, rtol=1e-5
    )


def test_poison_in_pad_rows_never_reaches_a_result(
    bert_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pad rows hold id 0; with NaN in its embedding they are NaN in every layer."""
    engine = RoseEngine.load(load_checkpoint(str(bert_folder)), num_threads=1)
    random = np.random.default_rng(0)
    batch = RaggedBatch.from_sequences(
        [random.integers(1, engine.info.vocab_size, n) for n in (5, 9, 1)]
    )
    clean = _rows(engine, batch)
    with torch.inference_mode():
        engine.runner._model._word[0] = float("nan")  # type: ignore[attr-defined]
    monkeypatch.setattr(batch_module, "token_bucket", lambda n: n + 13)
    poisoned = engine.step(batch).wait()
    assert poisoned.finite.all()
    np.testing.assert_allclose(poisoned.rows[0], clean, atol=1e-6, rtol=1e-5)
    engine.close()


def test_segments_each_get_their_own_form(engine: RoseEngine) -> None:
    batch = _batch(engine, [4, 9, 2, 5])
    specs = [
        OutputSpec(),
        OutputSpec(dimensions=16, dtype=OutputDtype.UBINARY),
        OutputSpec(dimensions=8, normalize=True),
    ]
    segments = [
        OutputSegment(0, 1, specs[0]),
        OutputSegment(1, 3, specs[1]),
        OutputSegment(3, 4, specs[2]),
    ]
    rows = engine.step(batch, segments).wait().rows
    assert [r.shape for r in rows] == [(1, 64), (2, 2), (1, 8)]
    assert [r.dtype for r in rows] == [np.float32, np.uint8, np.float32]
    whole = _rows(engine, batch)
    np.testing.assert_allclose(rows[0][0], whole[0], atol=1e-6)
    np.testing.assert_array_equal(rows[1], np.packbits(whole[1:3, :16] >= 0, axis=-1))
    cut = whole[3, :8] / np.linalg.norm(whole[3, :8])
    np.testing.assert_allclose(rows[2][0], cut, atol=1e-6)


def test_a_non_finite_row_is_marked_and_the_others_are_right(tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    tensors["embeddings.word_embeddings.weight"][7] = np.nan
    save_tensors(folder / "model.safetensors", tensors)
    engine = RoseEngine.load(load_checkpoint(str(folder)), num_threads=1)
    result = engine.step(RaggedBatch.from_sequences([[1, 2], [3, 7], [4]])).wait()
    assert result.finite.tolist() == [True, False, True]
    assert np.isfinite(result.rows[0][[0, 2]]).all()
    engine.close()


async def test_step_returns_at_once_and_can_be_awaited(engine: RoseEngine) -> None:
    batches = [_batch(engine, [n], seed=n) for n in (3, 40, 8)]
    pending = [engine.step(b) for b in batches]
    results = [await p for p in reversed(pending)][::-1]
    for batch, result in zip(batches, results, strict=True):
        np.testing.assert_array_equal(result.rows[0], _rows(engine, batch))
    assert all(p.ready() for p in pending)


def test_a_fault_in_a_step_is_raised_by_its_handle_alone(
    engine: RoseEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(batch: object) -> torch.Tensor:
        raise RuntimeError("broken layer")

    with monkeypatch.context() as patch:
        patch.setattr(engine.runner._model, "forward", fail)
        pending = engine.step(_batch(engine, [3]))
        with pytest.raises(RuntimeError, match="broken layer"):
            pending.wait()
    assert np.isfinite(_rows(engine, _batch(engine, [3]))).all()


def test_a_closed_engine_says_so(bert_folder: Path) -> None:
    engine = RoseEngine.load(load_checkpoint(str(bert_folder)), num_threads=1)
    pending = engine.step(_batch(engine, [5]))
    engine.close()
    assert pending.wait().finite.all(), "a step that was taken is finished"
    with pytest.raises(EngineDeadError):
        engine.step(_batch(engine, [5]))


def test_warm_up_builds_what_the_first_texts_need(bert_folder: Path) -> None:
    engine = RoseEngine.load(load_checkpoint(str(bert_folder)), num_threads=1)
    seen: list[int] = []
    forward = engine.runner._model.forward
    engine.runner._model.forward = lambda b: (seen.append(len(b.token_ids)), forward(b))[1]  # type: ignore[method-assign]
    engine.warm_up()
    assert {8, 16, 64, 128, 512} <= set(seen)
    engine.close()


def test_info_states_the_facts(engine: RoseEngine) -> None:
    info = engine.info
    assert info.dimensions == 64
    assert (info.task, info.device, info.dtype) == ("embed", "cpu", "float32")
    assert len(info.fingerprint) == 16


def test_a_named_attention_backend_is_never_replaced_without_a_word(tmp_path: Path) -> None:
    """MPNet's bias is in no backend: it brings its own attention."""
    checkpoint = load_checkpoint(str(make_family(tmp_path / "m", "mpnet")))
    with pytest.raises(HotbedError, match="'sdpa' cannot run this model: it has a position bias"):
        RoseEngine.load(checkpoint, device="cpu", attention=AttentionSettings("sdpa"))


def test_fp8_on_a_cpu_is_refused_at_load(tmp_path: Path) -> None:
    make_bert(tmp_path)
    with pytest.raises(HotbedError, match="fp8 needs a GPU"):
        RoseEngine.load(load_checkpoint(str(tmp_path)), device="cpu", dtype="fp8")
