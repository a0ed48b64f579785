"""Parts of a long text: all of it, each within the limit, cut at words."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from hotbed.bulk import chunk as module
from hotbed.bulk.chunk import chunk
from hotbed.checkpoint.records import TokenizerFiles
from hotbed.text.options import EncodeOptions
from hotbed.text.tokenizer import Tokenizer
from tests.bulk.jobs import texts
from tests.support.tiny_tokenizers import byte_level_bpe, wordpiece

LONG = {
    "words": " ".join(texts(60)),
    "one endless word": "[SEP]" * 200 + "fox" * 40,
    "bytes of several tokens a character": "日本語 é🦊 " * 60,
    "a segment's border": " ".join(texts(60, seed=1)),
}


@pytest.fixture(params=["wordpiece", "byte_level_bpe"])
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> Tokenizer:
    source = wordpiece() if request.param == "wordpiece" else byte_level_bpe(append_end=True)
    source.save(str(tmp_path / "tokenizer.json"))
    files = TokenizerFiles(tokenizer_json=tmp_path / "tokenizer.json")
    return Tokenizer.load(files, max_tokens=32, vocab_size=source.get_vocab_size(), fast="off")


@pytest.mark.parametrize("name", LONG)
def test_parts_cover_the_text_and_fit(
    name: str, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "a segment's border":
        monkeypatch.setattr(module, "_SEGMENT_CHARS", 150)
    text = LONG[name]
    spans, measured = chunk(tokenizer, text, EncodeOptions(prefix="a: "))
    assert measured is not None
    assert len(spans) > 1
    assert measured.lengths.max() <= tokenizer.max_tokens
    between = [text[a:b] for (_, a), (b, _) in pairwise(spans)]
    assert not "".join(between).strip()
    assert all(a <= b for (_, a), (b, _) in pairwise(spans))
    assert text[spans[0][0] : spans[-1][1]].strip() == text.strip()


def test_parts_begin_at_words(tmp_path: Path) -> None:
    wordpiece().save(str(tmp_path / "tokenizer.json"))
    files = TokenizerFiles(tokenizer_json=tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.load(files, max_tokens=32, vocab_size=10_000, fast="off")
    text = LONG["words"]
    spans, _ = chunk(tokenizer, text, EncodeOptions())
    assert all(text[start - 1] == " " and text[start] != " " for start, _ in spans[1:])


def test_a_text_without_tokens_has_no_part(tokenizer: Tokenizer) -> None:
    assert chunk(tokenizer, "", EncodeOptions()) == ([], None)
