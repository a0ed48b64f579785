from __future__ import annotations

from collections.abc import Sequence

import pytest
import tokenizers
from tokenizers import normalizers

from hotbed.core.ragged import RaggedBatch
from hotbed.text.backend import BackendName, HuggingFaceBackend
from hotbed.text.check_strings import check_strings
from hotbed.text.selfcheck import num_differences
from tests.support.tiny_tokenizers import byte_level_bpe, wordpiece


def accented() -> tokenizers.Tokenizer:
    """A BERT tokenizer that keeps accents, so that losing one shows."""
    tokenizer = wordpiece()
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    return tokenizer


class Broken:
    """The reference with one kind of fault."""

    name: BackendName = "nanotoken"

    def __init__(self, fault: str) -> None:
        self._inner = HuggingFaceBackend(accented())
        self._fault = fault

    def encode(self, texts: Sequence[str], *, add_special_tokens: bool) -> RaggedBatch:
        specials, texts = add_special_tokens, list(texts)
        if self._fault == "strips accents":
            texts = [t.replace("\u0301", "") for t in texts]
        if self._fault == "loses a text" and len(texts) > 1:
            texts = texts[:-1]
        if self._fault == "no special tokens":
            specials = False
        if self._fault == "always special tokens":
            specials = True
        if self._fault == "wrong when alone" and len(texts) == 1:
            texts = ["dog"]
        if self._fault == "astral":
            texts = ["".join(c if c < "\U00010000" else "?" for c in t) for t in texts]
        return self._inner.encode(texts, add_special_tokens=specials)


@pytest.mark.parametrize(
    "fault",
    [
        "strips accents",
        "loses a text",
        "no special tokens",
        "always special tokens",
        "wrong when alone",
        "astral",
    ],
)
def test_fault_is_found(fault: str) -> None:
    tokenizer = accented()
    reference = HuggingFaceBackend(tokenizer)
    assert num_differences(reference, Broken(fault), check_strings(tokenizer)) > 0


def test_the_reference_agrees_with_itself() -> None:
    tokenizer = accented()
    reference = HuggingFaceBackend(tokenizer)
    assert num_differences(reference, Broken("none"), check_strings(tokenizer)) == 0


def test_strings_are_many_fixed_and_hold_the_tokenizers_own_tokens() -> None:
    for tokenizer in (wordpiece(), byte_level_bpe(append_end=True)):
        texts = check_strings(tokenizer)
        assert 1500 < len(texts) < 2500
        assert texts == check_strings(tokenizer)
        added = {t.content for t in tokenizer.get_added_tokens_decoder().values()}
        assert added <= set(texts)
        for text in texts:
            text.encode()  # no lone surrogate: they are replaced before a backend sees them
