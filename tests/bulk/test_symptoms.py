"""What users of other servers report, over the whole path from text to row.

Where a symptom is one of the tokenizer or the engine alone, its test lies there
(tests/text, tests/rose/test_symptoms.py).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from hotbed import Embedder
from hotbed.core.errors import HotbedError
from tests.support.checkpoints import edit_json, make_bert, make_qwen3, write_json
from tests.support.families import make_family

TEXTS = ["cat", "the cat is not in the house", "a document of the search", "Hotbed!"]


def rows(folder: Path, texts: list[str], **options: object) -> np.ndarray:
    with Embedder(str(folder), device="cpu", num_threads=1) as embedder:
        return embedder.embed(texts, **options)  # type: ignore[arg-type]


def reference(folder: Path, texts: list[str]) -> np.ndarray:
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return model.encode(texts, batch_size=1, show_progress_bar=False)


def test_a_tokenizer_without_a_pad_token_takes_texts_of_unequal_length(tmp_path: Path) -> None:
    """Nothing is padded, so none is needed: others fail on the second text."""
    folder = make_qwen3(tmp_path / "m")
    expected = reference(folder, TEXTS)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["pad_token"]
    write_json(folder / "tokenizer_config.json", settings)
    np.testing.assert_allclose(rows(folder, TEXTS), expected, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_padding_side_of_the_files_changes_nothing(side: str, tmp_path: Path) -> None:
    """Padded on the left, the last column is the last token, on the right it is a pad."""
    folder = make_qwen3(tmp_path / "m")
    edit_json(folder / "tokenizer_config.json", padding_side=side)
    np.testing.assert_allclose(rows(folder, TEXTS), reference(folder, TEXTS), atol=1e-5)


def test_the_first_token_is_pooled_where_the_files_say_so(tmp_path: Path) -> None:
    """Pooled by mean all the same, rows were at cosine 0.61."""
    folder = make_bert(tmp_path / "cls", pooling="cls")
    got, expected = rows(folder, TEXTS), reference(folder, TEXTS)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    by_mean = rows(make_bert(tmp_path / "mean", pooling="mean"), TEXTS)
    assert (got * by_mean).sum(1).max() < 0.99


def test_rows_are_not_normalised_where_no_module_does_it(tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "m", normalize=False)
    got = rows(folder, TEXTS)
    np.testing.assert_allclose(got, reference(folder, TEXTS), rtol=1e-4, atol=1e-5)
    assert np.abs(np.linalg.norm(got, axis=1) - 1).min() > 0.1


def test_dense_modules_are_run_and_not_skipped(tmp_path: Path) -> None:
    """Skipped, EmbeddingGemma's rows were at cosine 0."""
    folder = make_family(tmp_path / "m", "bert", dense=[(64, "linear.Identity", False)])
    got = rows(folder, TEXTS)
    assert got.shape == (4, 64)
    np.testing.assert_allclose(got, reference(folder, TEXTS), atol=1e-5)


def test_a_list_of_many_texts_comes_back_whole_and_in_order(tmp_path: Path) -> None:
    """Of three texts two came back, of ten some in another order."""
    folder = make_bert(tmp_path / "m")
    texts = [f"cat {'the ' * (n * 7 % 13)}house" for n in range(13)]
    together = rows(folder, texts)
    assert len(together) == len(texts)
    alone = np.concatenate([rows(folder, [text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_an_identical_text_is_never_less_similar_than_another(tmp_path: Path) -> None:
    """Products in half precision put another text first, at 0.99993."""
    folder = make_bert(tmp_path / "m")
    got = rows(folder, [*TEXTS, *TEXTS])
    similarity = got[:4] @ got[4:].T
    assert (similarity.argmax(1) == np.arange(4)).all()
    np.testing.assert_allclose(np.diag(similarity), 1, atol=1e-6)


def test_the_same_text_again_is_the_same_row(tmp_path: Path) -> None:
    """A cache of prefixes gave the second request another row (cosine 0.58)."""
    folder = make_qwen3(tmp_path / "m")
    with Embedder(str(folder), device="cpu", num_threads=1) as embedder:
        first = embedder.embed(TEXTS[1])
        embedder.embed(TEXTS)
        np.testing.assert_array_equal(embedder.embed(TEXTS[1]), first)


def test_a_prompt_in_the_text_and_by_its_name_give_one_row(tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "m", prompts={"query": "query: "}, default_prompt_name="query")
    by_default = rows(folder, TEXTS)
    by_name = rows(folder, TEXTS, prompt_name="query")
    np.testing.assert_array_equal(by_default, by_name)
    edit_json(folder / "config_sentence_transformers.json", default_prompt_name=None)
    typed = rows(folder, [f"query: {text}" for text in TEXTS])
    np.testing.assert_allclose(typed, by_name, atol=1e-6)
    assert np.abs(rows(folder, TEXTS) - by_name).max() > 1e-3


@pytest.mark.parametrize("dimensions", [8, 16, 64])
def test_a_row_that_was_cut_has_length_one(dimensions: int, tmp_path: Path) -> None:
    """Cut after normalising, its norm was below one."""
    got = rows(make_bert(tmp_path / "m"), TEXTS, dimensions=dimensions)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, atol=1e-6)


def test_more_dimensions_than_there_are_are_refused(tmp_path: Path) -> None:
    """They silently came as the native ones."""
    folder = make_bert(tmp_path / "m")
    with pytest.raises(HotbedError, match="dimensions must be 1 to 64, got 100000"):
        rows(folder, TEXTS, dimensions=100_000)
    assert rows(folder, TEXTS, dimensions=64).shape == (4, 64)


def test_rows_of_chunks_are_normalised_where_rows_of_texts_are(tmp_path: Path) -> None:
    """An average of two orthogonal rows has a norm of 0.707."""
    with Embedder(str(make_bert(tmp_path / "m")), device="cpu", num_threads=1) as embedder:
        (chunks,) = embedder.embed_chunks([["cat", "the house is not", "a document"]])
    np.testing.assert_allclose(np.linalg.norm(chunks, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("dtype", ["binary", "ubinary"])
def test_one_text_in_bits_is_packed_along_its_row(dtype: str, tmp_path: Path) -> None:
    """One vector alone was packed over the wrong axis."""
    folder = make_bert(tmp_path / "m")
    (packed,) = rows(folder, TEXTS[:1], output_dtype=dtype)
    (plain,) = rows(folder, TEXTS[:1])
    expected = np.packbits(plain >= 0)
    if dtype == "binary":
        packed = (packed.astype(np.int16) + 128).astype(np.uint8)
    np.testing.assert_array_equal(packed, expected)


def test_int8_does_not_wrap_around(tmp_path: Path) -> None:
    """A value beyond the range came back with the other sign."""
    folder = make_bert(tmp_path / "m", normalize=False)
    plain, codes = rows(folder, TEXTS), rows(folder, TEXTS, output_dtype="int8")
    large = np.abs(plain) > 0.01 * np.abs(plain).max()
    assert (np.sign(codes[large]) == np.sign(plain[large])).all()
    cosine = (plain * codes).sum(1) / np.linalg.norm(plain, axis=1) / np.linalg.norm(codes, axis=1)
    assert cosine.min() > 0.999
