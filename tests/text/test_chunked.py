"""Documents of chunks: each chunk's own tokens are its row, and nothing else is."""

from __future__ import annotations

import pytest

from hotbed.checkpoint.records import TokenizerFiles
from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.ragged import RaggedBatch
from hotbed.text.chunked import encode_chunks
from hotbed.text.options import EncodeOptions
from hotbed.text.tokenizer import Tokenizer
from tests.support.tiny_tokenizers import END_OF_TEXT, byte_level_bpe, wordpiece
from tests.text.conftest import Load

BARE = EncodeOptions(add_special_tokens=False)


@pytest.fixture
def contextual(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """pplx-embed-context-v1's kind: nothing around a text, <|endoftext|> between chunks."""
    path = tmp_path_factory.mktemp("t") / "tokenizer.json"
    byte_level_bpe(append_end=False).save(str(path))
    files = TokenizerFiles(tokenizer_json=path, chunk_separator=END_OF_TEXT)
    return Tokenizer.load(files, max_tokens=32, vocab_size=400, fast="off")


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode([text], BARE).batch.token_ids.tolist()


def spans_of(batch: RaggedBatch) -> list[list[int]]:
    return [batch.token_ids[start:stop].tolist() for start, stop in batch.span_offsets()]


def refusal(tokenizer: Tokenizer, documents: list[list[str]]) -> HotbedError:
    with pytest.raises(HotbedError) as caught:
        encode_chunks(tokenizer, documents)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    return caught.value


def test_separators_stand_between_chunks_and_in_no_row(contextual: Tokenizer) -> None:
    separator = contextual.chunk_separator
    assert separator is not None
    batch = encode_chunks(contextual, [["the cat", "of", "a dog"], ["model"]])
    the_cat, of, a_dog, model = (ids_of(contextual, t) for t in ("the cat", "of", "a dog", "model"))
    assert batch.sequence(0).tolist() == [*the_cat, separator, *of, separator, *a_dog]
    assert batch.sequence(1).tolist() == model
    assert spans_of(batch) == [the_cat, of, a_dog, model]


def test_joining_ids_is_tokenising_the_joined_text(contextual: Tokenizer) -> None:
    chunks = ["the cat. ", "of the", " model"]
    batch = encode_chunks(contextual, [chunks])
    assert batch.token_ids.tolist() == ids_of(contextual, END_OF_TEXT.join(chunks))


def test_special_tokens_and_the_prompt_are_in_no_row(load: Load) -> None:
    bert = load(wordpiece())
    batch = encode_chunks(bert, [["the cat", "a dog"]], prompt="query: ")
    the_cat, a_dog, prompt = (ids_of(bert, t) for t in ("the cat", "a dog", "query: "))
    (cls,), (sep,) = bert.template.prefix, bert.template.suffix
    assert batch.token_ids.tolist() == [cls, *prompt, *the_cat, *a_dog, sep]
    assert spans_of(batch) == [the_cat, a_dog]


@pytest.mark.parametrize(
    ("documents", "param", "says"),
    [
        ([], "input", "at least 1 document"),
        ([["a"], []], "input[1]", "at least 1 chunk"),
        (["a text"], "input[0]", "list of"),
        ([["a"], ["b", " "]], "input[1][1]", "input[1][1] holds no text"),
        ([["a", 3]], "input[0][1]", "input[0][1] must be a string"),
        ([["a", f"b{END_OF_TEXT}c"]], "input[0][1]", "separates chunks"),
        ([["the"] * 17], "input[0]", "33 tokens in its 17 chunks together, the limit is 32"),
    ],
)
def test_what_has_no_sound_row_is_refused_by_its_place(
    contextual: Tokenizer, documents: list[list[str]], param: str, says: str
) -> None:
    error = refusal(contextual, documents)
    assert error.param == param
    assert says in error.message


def test_a_document_at_the_limit_passes(contextual: Tokenizer) -> None:
    batch = encode_chunks(contextual, [["a"] * 15 + ["a."]])
    assert batch.lengths.tolist() == [32]


def test_a_separator_that_the_tokenizer_lacks_is_refused_at_load(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("t") / "tokenizer.json"
    wordpiece().save(str(path))
    files = TokenizerFiles(tokenizer_json=path, chunk_separator=END_OF_TEXT)
    with pytest.raises(HotbedError, match="which the model puts between chunks"):
        Tokenizer.load(files, max_tokens=32, vocab_size=400, fast="off")
