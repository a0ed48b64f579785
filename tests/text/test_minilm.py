"""The default model's own tokenizer.json against transformers, which sentence-transformers uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizers

from hotbed.checkpoint.records import TokenizerFiles
from hotbed.core.errors import HotbedError
from hotbed.text.check_strings import check_strings
from hotbed.text.tokenizer import EncodeOptions, Tokenizer

pytestmark = pytest.mark.weights

PARAGRAPH = (
    "Embeddings map text to vectors, naïvely or not: «Ça va?» 中文 and 한국어, 👩‍👩‍👧 1,234.56. "
    "Unaffordable antidisestablishmentarianism; [SEP] don't stop! "
)


@pytest.fixture(scope="module")
def transformers_tokenizer(minilm_folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(minilm_folder))


@pytest.fixture(scope="module")
def usable(minilm_files: TokenizerFiles, minilm: Tokenizer) -> list[str]:
    """The self-check's strings that hold any text."""

    def has_text(text: str) -> bool:
        try:
            minilm.encode([text], EncodeOptions(truncate=True))
        except HotbedError:
            return False
        return True

    tokenizer = tokenizers.Tokenizer.from_file(str(minilm_files.tokenizer_json))
    texts = [text for text in check_strings(tokenizer) if has_text(text)]
    assert len(texts) > 1200
    return texts


def expected(tokenizer: Any, texts: list[str], limit: int, side: str) -> list[list[int]]:
    tokenizer.truncation_side = side
    ids: list[list[int]] = tokenizer(texts, truncation=True, max_length=limit)["input_ids"]
    return ids


def actual(tokenizer: Tokenizer, texts: list[str], **options: Any) -> list[list[int]]:
    batch = tokenizer.encode(texts, EncodeOptions(truncate=True, **options)).batch
    return [batch.sequence(i).tolist() for i in range(batch.num_sequences)]


def test_nanotoken_passes_the_self_check(minilm: Tokenizer) -> None:
    assert minilm.backend == "nanotoken"
    assert minilm.num_special_tokens == 2


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("limit", [3, 8, 256])
def test_odd_texts_have_transformers_ids(
    minilm: Tokenizer, transformers_tokenizer: Any, usable: list[str], limit: int, side: str
) -> None:
    want = expected(transformers_tokenizer, usable, limit, side)
    assert actual(minilm, usable, max_tokens=limit, truncation_side=side) == want


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("over", [-1, 0, 1])
def test_around_the_limit_has_transformers_ids(
    minilm: Tokenizer, transformers_tokenizer: Any, over: int, side: str
) -> None:
    text = PARAGRAPH * 3
    limit = len(transformers_tokenizer(text)["input_ids"]) - over
    assert limit <= 256
    want = expected(transformers_tokenizer, [text], limit, side)
    assert actual(minilm, [text], max_tokens=limit, truncation_side=side) == want
    assert len(want[0]) == limit if over >= 0 else limit - 1


def test_backends_agree_on_a_long_text(minilm_files: TokenizerFiles) -> None:
    by_backend = {
        fast: Tokenizer.load(minilm_files, max_tokens=100_000, vocab_size=30522, fast=fast)
        for fast in ("auto", "off")
    }
    assert {t.backend for t in by_backend.values()} == {"nanotoken", "tokenizers"}
    texts = [PARAGRAPH * 50, "x" * 5000, "中" * 5000]
    assert actual(by_backend["auto"], texts) == actual(by_backend["off"], texts)


def test_prompt_has_sentence_transformers_ids(
    minilm: Tokenizer, transformers_tokenizer: Any
) -> None:
    want = expected(transformers_tokenizer, ["query: what is 中?"], 256, "right")
    assert actual(minilm, ["what is 中?"], prefix="query: ") == want


def test_stored_padding_and_truncation_to_128_are_off(minilm: Tokenizer) -> None:
    assert minilm.encode(["a"]).batch.num_tokens == 3
    assert minilm.encode(["word " * 200]).batch.num_tokens == 202


def test_upper_case_is_not_unknown(minilm: Tokenizer) -> None:
    assert actual(minilm, ["Hello"]) == actual(minilm, ["hello"]) == [[101, 7592, 102]]
