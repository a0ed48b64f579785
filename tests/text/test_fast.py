from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence

import pytest
import tokenizers
from tokenizers import models, normalizers

from hotbed.core.ragged import RaggedBatch
from hotbed.text.backend import Backend, BackendName, HuggingFaceBackend
from hotbed.text.fast import CANDIDATES, NanotokenBackend, choose_backend
from tests.support.tiny_tokenizers import byte_level_bpe, wordpiece


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="hotbed.text")
    return caplog


def choose(tokenizer: tokenizers.Tokenizer, **candidates: Callable[[str], Backend]) -> Backend:
    reference = HuggingFaceBackend(tokenizer)
    chosen = choose_backend(tokenizer, reference, candidates or CANDIDATES)
    assert (chosen is reference) == (chosen.name == "tokenizers")
    return chosen


def test_wordpiece_is_taken_over_by_nanotoken(log: pytest.LogCaptureFixture) -> None:
    assert choose(wordpiece()).name == "nanotoken"
    assert "agrees on all" in log.messages[-1]


@pytest.mark.parametrize("append_end", [True, False])
def test_byte_level_bpe_is_taken_over_by_fastokens(append_end: bool) -> None:
    chosen = choose(byte_level_bpe(append_end=append_end))
    assert chosen.name == "fastokens"
    batch = chosen.encode(["the model", "a"], add_special_tokens=True)
    assert batch.num_sequences == 2


class OffByOne:
    """Loses the last text token of long texts: right on nearly everything."""

    name: BackendName = "nanotoken"

    def __init__(self, tokenizer_json: str) -> None:
        self._inner = NanotokenBackend(tokenizer_json)

    def encode(self, texts: Sequence[str], *, add_special_tokens: bool) -> RaggedBatch:
        batch = self._inner.encode(texts, add_special_tokens=add_special_tokens)
        sequences = [batch.sequence(i) for i in range(batch.num_sequences)]
        return RaggedBatch.from_sequences([s[:900] for s in sequences])


def test_broken_adapter_is_rejected(log: pytest.LogCaptureFixture) -> None:
    assert choose(wordpiece(), WordPiece=OffByOne).name == "tokenizers"
    assert len(log.records) == 1
    assert log.records[0].levelno == logging.WARNING
    assert "nanotoken differs on" in log.messages[0]


def test_unsupported_component_keeps_the_reference(log: pytest.LogCaptureFixture) -> None:
    tokenizer = wordpiece()
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace("a", "b")])
    assert choose(tokenizer).name == "tokenizers"
    assert len(log.records) == 1
    assert "nanotoken" in log.messages[0]


def test_other_models_keep_the_reference(log: pytest.LogCaptureFixture) -> None:
    tokenizer = tokenizers.Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0)], 0))
    assert choose(tokenizer).name == "tokenizers"
    assert "Unigram" in log.messages[0]


def test_package_that_is_not_installed_keeps_the_reference(
    monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert choose(wordpiece()).name == "tokenizers"
    assert log.messages == ["tokenizing with tokenizers: nanotoken is not installed"]


def test_panicking_adapter_is_rejected(log: pytest.LogCaptureFixture) -> None:
    class PanicException(BaseException):
        pass

    class Panics:
        name: BackendName = "nanotoken"

        def __init__(self, tokenizer_json: str) -> None:
            raise PanicException("index out of bounds")

        def encode(self, texts: Sequence[str], *, add_special_tokens: bool) -> RaggedBatch:
            raise NotImplementedError

    assert choose(wordpiece(), WordPiece=Panics).name == "tokenizers"
    assert "nanotoken refused" in log.messages[0]
