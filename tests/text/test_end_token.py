"""The end token that tokenizer_config.json asks for, though tokenizer.json does not add it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.errors import HotbedError
from hotbed.text.options import EncodeOptions
from hotbed.text.tokenizer import Tokenizer
from tests.support.checkpoints import edit_json
from tests.support.families import make_family
from tests.support.tiny_tokenizers import END_OF_TEXT


def load(folder: Path) -> Tokenizer:
    checkpoint = load_checkpoint(str(folder), weights=False)
    return Tokenizer.load(
        checkpoint.tokenizer, max_tokens=12, vocab_size=checkpoint.config.vocab_size
    )


def encode(tokenizer: Tokenizer, text: str, *, truncate: bool = False) -> list[int]:
    return tokenizer.encode([text], EncodeOptions(truncate=truncate)).batch.token_ids.tolist()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = make_family(tmp_path / "m", "mistral", tokenizer="bpe", pooling="last")
    edit_json(folder / "tokenizer_config.json", add_eos_token=True, eos_token=END_OF_TEXT)
    return folder


def test_e5_mistral_ends_every_text(folder: Path) -> None:
    """Else the last token is a word: transformers 5 lost it so."""
    tokenizer = load(folder)
    edit_json(folder / "tokenizer_config.json", add_eos_token=False)
    bare = load(folder)
    end = tokenizer.template.suffix
    assert len(end) == 1
    assert tokenizer.fingerprint != bare.fingerprint
    for text in ("the cat", "a", "model of text"):
        assert encode(tokenizer, text) == [*encode(bare, text), *end]


def test_truncation_keeps_it(folder: Path) -> None:
    tokenizer = load(folder)
    ids = encode(tokenizer, "a dog. " * 20, truncate=True)
    assert len(ids) == 12
    assert ids[-1:] == list(tokenizer.template.suffix)


def test_it_is_not_added_twice(tmp_path: Path) -> None:
    folder = make_family(tmp_path / "m", "mistral", tokenizer="bpe with end", pooling="last")
    before = encode(load(folder), "the cat")
    edit_json(
        folder / "tokenizer_config.json", add_eos_token=True, eos_token={"content": END_OF_TEXT}
    )
    assert encode(load(folder), "the cat") == before


def test_it_goes_behind_what_the_tokenizer_adds(tmp_path: Path) -> None:
    folder = make_family(tmp_path / "m", "bert")
    before = encode(load(folder), "the cat")
    edit_json(folder / "tokenizer_config.json", add_eos_token=True, eos_token="[MASK]")
    assert encode(load(folder), "the cat") == [*before, 4]


def test_both_texts_of_a_pair_keep_what_stands_around_each(tmp_path: Path) -> None:
    """A template without a form of its own for pairs leaves them bare."""
    folder = make_family(tmp_path / "m", "mistral", tokenizer="bpe", pooling="last")
    edit_json(folder / "tokenizer_config.json", add_eos_token=True, eos_token=END_OF_TEXT)
    tokenizer = load(folder)
    ids, _, texts = tokenizer.reference.encode_pair("the cat", "a")
    (end,) = tokenizer.template.suffix
    first, second = encode(tokenizer, "the cat"), encode(tokenizer, "a")
    assert ids == first + second
    assert [i for i, text in zip(ids, texts, strict=True) if text is None] == [end, end]


def test_a_token_that_is_not_there_is_refused(folder: Path) -> None:
    edit_json(folder / "tokenizer_config.json", eos_token="</s>")
    with pytest.raises(HotbedError, match="eos_token '</s>' is not in"):
        load(folder)
