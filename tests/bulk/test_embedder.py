"""The Python API."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

import hotbed
from hotbed import Embedder
from hotbed.bulk import windows
from hotbed.core.errors import HotbedError
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import StepResult
from tests.support.checkpoints import make_bert, make_qwen3

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "runs"]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedder]:
    prompts = {"query": "query: ", "document": "passage: "}
    folder = make_bert(tmp_path_factory.mktemp("m") / "m", prompts=prompts)
    with Embedder(str(folder), num_threads=1, fast_tokenizers="off") as made:
        yield made


def _texts(count: int) -> list[str]:
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS, random.integers(1, 15))) for _ in range(count)]


def test_one_text_gives_a_row_and_a_list_gives_rows(embedder: Embedder) -> None:
    row = embedder.embed("the quick fox")
    rows = embedder.embed(["the quick fox", "a dog"])
    assert row.shape == (64,)
    assert rows.shape == (2, 64)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(row, rows[0], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


def test_no_texts_give_no_rows(embedder: Embedder) -> None:
    assert embedder.embed([]).shape == (0, 64)


def test_order_is_kept_over_windows_and_steps(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "WINDOW_INPUTS", 7)
    monkeypatch.setattr(type(embedder._engine), "default_step_tokens", 40)
    texts = _texts(50)
    together = embedder.embed(texts)
    alone = np.stack([embedder.embed(t) for t in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_prompts_change_the_row_and_are_the_prefix(embedder: Embedder) -> None:
    plain, query = embedder.embed("fox"), embedder.embed("fox", input_type="query")
    assert not np.allclose(plain, query, atol=1e-3)
    np.testing.assert_allclose(embedder.embed("query: fox"), query, atol=1e-6)
    np.testing.assert_array_equal(embedder.embed("fox", prompt_name="query"), query)


def test_the_index_of_a_bad_text_is_named_also_in_a_later_window(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "WINDOW_INPUTS", 4)
    texts = _texts(10)
    texts[9] = " \n"
    with pytest.raises(HotbedError) as caught:
        embedder.embed(texts)
    assert caught.value.param == "input[9]"


def test_a_long_text_is_refused_with_both_numbers_unless_cut(embedder: Embedder) -> None:
    long = "fox " * 100
    with pytest.raises(HotbedError, match=r"302 tokens, the limit is 64"):
        embedder.embed([long])
    assert embedder.embed([long], truncate=True).shape == (1, 64)


@pytest.mark.parametrize(
    ("option", "param"),
    [
        ({"dimensions": 65}, "dimensions"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": 12, "output_dtype": "binary"}, "dimensions"),
        ({"output_dtype": "float64"}, "output_dtype"),
        ({"prompt_name": "nope"}, "prompt_name"),
    ],
)
def test_a_bad_option_is_named(embedder: Embedder, option: dict[str, object], param: str) -> None:
    with pytest.raises(HotbedError) as caught:
        embedder.embed(["fox"], **option)  # type: ignore[arg-type]
    assert caught.value.param == param


def test_dimensions_are_cut_and_normalised(embedder: Embedder) -> None:
    full, cut = embedder.embed("fox"), embedder.embed("fox", dimensions=16)
    np.testing.assert_allclose(cut, full[:16] / np.linalg.norm(full[:16]), atol=1e-6)
    np.testing.assert_allclose(embedder.embed("fox", dimensions=64), full, atol=1e-6)


def test_progress_is_shown_when_asked(embedder: Embedder, capsys: pytest.CaptureFixture) -> None:
    embedder.embed(_texts(3), show_progress=True)
    assert "3/3" in capsys.readouterr().err
    embedder.embed(_texts(3))
    assert capsys.readouterr().err == ""


def test_a_non_finite_row_is_never_returned(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = embedder._engine.runner._model.forward
    monkeypatch.setattr(
        embedder._engine.runner._model, "forward", lambda batch: forward(batch) * float("nan")
    )
    with pytest.raises(HotbedError, match="not finite"):
        embedder.embed(["fox"])


def test_texts_that_another_one_spoiled_get_their_rows(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = _texts(6)
    expected = embedder.embed(texts)
    runner = embedder._engine.runner
    submit = runner.submit

    def leaky(batch: RaggedBatch, segments: Any) -> Future[StepResult]:
        result = submit(batch, segments).result()
        done: Future[StepResult] = Future()
        done.set_result(StepResult(result.rows, result.finite & (batch.num_sequences == 1)))
        return done

    monkeypatch.setattr(runner, "submit", leaky)
    monkeypatch.setattr(embedder._engine, "isolates_nan", False)
    np.testing.assert_allclose(embedder.embed(texts), expected, atol=1e-6)


def test_the_package_offers_its_names() -> None:
    assert set(hotbed.__all__) == {"Embedder", "Reranker", "__version__"}
    assert hotbed.Embedder is Embedder
    with pytest.raises(AttributeError, match="no attribute 'Embeder'"):
        _ = hotbed.Embeder


def test_chunks_are_embedded_within_their_document(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows over steps, alone and among others; a document of one chunk is a plain text."""
    folder = make_qwen3(tmp_path_factory.mktemp("m") / "m", pplx=True, contextual=True)
    documents = [["the cat", "of the model"], ["a dog"], ["text, ", "token. ", "query"], ["in"]]
    with Embedder(str(folder), num_threads=1, fast_tokenizers="off") as made:
        together = made.embed_chunks(documents)
        assert [rows.shape for rows in together] == [(2, 64), (1, 64), (3, 64), (1, 64)]
        for document, rows in zip(documents, together, strict=True):
            np.testing.assert_allclose(made.embed_chunks([document])[0], rows, atol=1e-5)
        np.testing.assert_allclose(together[1][0], made.embed("a dog"), atol=1e-5)
        other = made.embed_chunks([["the cat", "of a dog"]])[0]
        assert np.abs(other[0] - together[0][0]).max() > 1e-3, "a chunk reads its document"
        monkeypatch.setattr(type(made._engine), "default_step_tokens", 9)
        for again, rows in zip(made.embed_chunks(documents), together, strict=True):
            np.testing.assert_allclose(again, rows, atol=1e-5)
        codes = made.embed_chunks(documents, output_dtype="int8", dimensions=16)
        assert [(rows.shape, rows.dtype) for rows in codes[:1]] == [((2, 16), np.int8)]


def test_chunks_need_a_model_that_pools_by_mean(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = make_qwen3(tmp_path_factory.mktemp("m") / "m", causal=True)
    with (
        Embedder(str(folder), num_threads=1, fast_tokenizers="off") as made,
        pytest.raises(HotbedError, match="pools by 'last'"),
    ):
        made.embed_chunks([["a", "b"]])
