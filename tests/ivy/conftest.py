"""A tiny tokenizer for all tests of the room."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotbed.checkpoint.load import load_checkpoint
from hotbed.checkpoint.records import TokenizerFiles
from hotbed.core.model_info import ModelInfo
from hotbed.ivy.served_model import ServedModel
from hotbed.text.pairs import PairTokenizer
from hotbed.text.tokenizer import Tokenizer
from tests.ivy.harness import info_for, model_for, unix_address
from tests.support.scorers import make_bert_scorer
from tests.support.tiny_tokenizers import wordpiece

MAX_TOKENS = 64


@pytest.fixture(scope="session")
def tokenizer_path(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    wordpiece().save(str(path))
    return path


@pytest.fixture(scope="session")
def tokenizer(tokenizer_path: Path) -> Tokenizer:
    """Some 200 tokens, at most MAX_TOKENS an input."""
    files = TokenizerFiles(tokenizer_json=tokenizer_path)
    vocab_size = wordpiece().get_vocab_size()
    return Tokenizer.load(files, max_tokens=MAX_TOKENS, vocab_size=vocab_size, fast="off")


@pytest.fixture
def model(tokenizer: Tokenizer) -> ServedModel:
    return model_for(tokenizer)


@pytest.fixture
def info(tokenizer: Tokenizer) -> ModelInfo:
    """What a replica of that model says."""
    return info_for(tokenizer)


@pytest.fixture
def addresses(tmp_path: Path) -> tuple[str, str]:
    return unix_address(tmp_path, "a"), unix_address(tmp_path, "b")


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> PairTokenizer:
    checkpoint = load_checkpoint(str(make_bert_scorer(tmp_path_factory.mktemp("bert"))))
    assert checkpoint.head is not None
    tokenizer = Tokenizer.load(
        checkpoint.tokenizer,
        max_tokens=checkpoint.max_tokens,
        vocab_size=checkpoint.config.vocab_size,
    )
    return PairTokenizer(tokenizer, checkpoint.head)
