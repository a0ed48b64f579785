"""Each test is named after what people saw go wrong elsewhere."""

from __future__ import annotations

import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as HuggingFace
from tokenizers import models, pre_tokenizers

from hotbed.checkpoint.records import TokenizerFiles
from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.ragged import RaggedBatch
from hotbed.text import tokenizer as tokenizer_module
from hotbed.text.backend import BackendName
from hotbed.text.tokenizer import EncodeOptions, Tokenizer
from tests.support.tiny_tokenizers import END_OF_TEXT, byte_level_bpe, wordpiece
from tests.text.conftest import Load

CLS, SEP, UNK = 2, 3, 1


def rows(batch: RaggedBatch) -> list[list[int]]:
    return [batch.sequence(i).tolist() for i in range(batch.num_sequences)]


def ids(tokenizer: Tokenizer, text: str, **options: object) -> list[int]:
    return rows(tokenizer.encode([text], EncodeOptions(**options)).batch)[0]  # type: ignore[arg-type]


def refusal(tokenizer: Tokenizer, texts: list[str], **options: object) -> HotbedError:
    with pytest.raises(HotbedError) as caught:
        tokenizer.encode(texts, EncodeOptions(**options))  # type: ignore[arg-type]
    return caught.value


def test_batch_is_flat_int32_in_order(bert: Tokenizer) -> None:
    encoded = bert.encode(["dog", "cat and dog", "dog"])
    assert encoded.num_truncated == 0
    assert encoded.batch.token_ids.dtype == np.int32
    assert encoded.batch.lengths.tolist() == [3, 5, 3]
    first, second, third = rows(encoded.batch)
    assert first == third == [CLS, second[3], SEP]


def test_file_that_pads_and_truncates_does_neither(load: Load) -> None:
    source = wordpiece()
    source.enable_padding(length=12)
    source.enable_truncation(max_length=4)
    tokenizer = load(source)
    assert tokenizer.encode(["dog", "cat and dog and cat"]).batch.lengths.tolist() == [3, 7]


def test_end_token_is_appended_as_the_file_says(load: Load) -> None:
    source = byte_level_bpe(append_end=True)
    end = source.token_to_id(END_OF_TEXT)
    with_end = ids(load(source), "the model")
    without_end = ids(load(byte_level_bpe(append_end=False)), "the model")
    assert with_end == [*without_end, end]


@pytest.mark.parametrize("side", ["left", "right"])
def test_truncation_keeps_the_end_token(bpe: Tokenizer, side: str) -> None:
    end = ids(bpe, "a")[-1]
    cut = ids(bpe, "0123456789abcdefghijkl", truncate=True, truncation_side=side)
    assert len(cut) == 16
    assert cut[-1] == end
    assert end not in cut[:-1]


@pytest.mark.parametrize(("side", "kept"), [("right", "012345"), ("left", "6789ab")])
def test_truncation_drops_the_side_asked_for(bpe: Tokenizer, side: str, kept: str) -> None:
    cut = ids(bpe, "0123456789ab", truncate=True, truncation_side=side, max_tokens=7)
    assert cut == ids(bpe, kept)


@pytest.mark.parametrize(
    ("num_words", "num_truncated"), [(13, 0), (14, 0), (15, 1)], ids=["-1", "=", "+1"]
)
def test_text_of_exactly_the_limit_passes(
    bert: Tokenizer, num_words: int, num_truncated: int
) -> None:
    text = " ".join(["dog"] * num_words)
    encoded = bert.encode([text], EncodeOptions(truncate=True))
    assert encoded.batch.lengths.tolist() == [min(num_words + 2, 16)]
    assert encoded.num_truncated == num_truncated
    if num_truncated:
        error = refusal(bert, [text])
        assert error.code is ErrorCode.INVALID_INPUT
        assert "17" in error.message
        assert "16" in error.message
    else:
        assert bert.encode([text]).batch.lengths.tolist() == [num_words + 2]


def test_too_long_text_names_index_both_numbers_and_the_way_out(bert: Tokenizer) -> None:
    error = refusal(bert, ["dog", "dog " * 20, "dog " * 30])
    assert error.param == "input[1]"
    assert "22 tokens" in error.message
    assert "16" in error.message
    assert "truncate" in error.message


def test_truncation_acts_on_every_text_of_a_list(bert: Tokenizer) -> None:
    encoded = bert.encode(["dog " * 20, "cat", "cat " * 30], EncodeOptions(truncate=True))
    assert encoded.batch.lengths.tolist() == [16, 3, 16]
    assert encoded.num_truncated == 2
    assert [row[-1] for row in rows(encoded.batch)] == [SEP] * 3


def test_limits_count_tokens_and_characters_not_bytes(load: Load) -> None:
    tokenizer = load(byte_level_bpe(append_end=True), max_chars=4)
    text = "\U00020000" * 4  # four tokens a character: one a byte
    whole = ids(load(byte_level_bpe(append_end=True), 17), text)
    assert refusal(tokenizer, [text]).message.startswith("input[0] has 17 tokens")
    assert len(ids(tokenizer, text[:3])) == 13
    assert ids(tokenizer, text, truncate=True) == [*whole[:15], whole[-1]]
    assert refusal(tokenizer, [text + "x"]).code is ErrorCode.TOO_LARGE


@pytest.mark.parametrize(
    "blank", ["", " ", "\n", "\t \r\n", "\u00a0", "\u2003\u3000", "\x00", "\u200b", "\x00 \u200b\n"]
)
def test_text_without_text_is_refused_with_its_index(bert: Tokenizer, blank: str) -> None:
    for options in ({}, {"prefix": "query : "}, {"truncate": True}, {"add_special_tokens": False}):
        error = refusal(bert, ["dog", blank, "cat"], **options)
        assert error.code is ErrorCode.INVALID_INPUT
        assert error.param == "input[1]"
        assert "input[1]" in error.message


@pytest.mark.parametrize("blank", ["", " ", "\n\n", "\u00a0", "\u3000 "])
def test_white_space_is_refused_also_where_it_is_a_token(bpe: Tokenizer, blank: str) -> None:
    error = refusal(bpe, ["dog", blank])
    assert error.param == "input[1]"
    assert "white space" in error.message


def test_empty_list_is_refused(bert: Tokenizer) -> None:
    assert refusal(bert, []).param == "input"


def test_string_in_place_of_a_list_is_not_read_letter_by_letter(bert: Tokenizer) -> None:
    with pytest.raises(TypeError):
        bert.encode("dog")


@pytest.mark.parametrize("other", [None, 3, b"dog", ["dog"]])
def test_anything_but_a_string_is_refused(bert: Tokenizer, other: object) -> None:
    assert refusal(bert, ["dog", other]).param == "input[1]"  # type: ignore[list-item]


def test_leading_and_trailing_white_space_stays(bpe: Tokenizer) -> None:
    assert len({tuple(ids(bpe, text)) for text in ("x", " x", "x ", "\nx", "x\n")}) == 5


def test_half_an_emoji_becomes_the_replacement_character(bpe: Tokenizer) -> None:
    assert ids(bpe, "a\ud83d b") == ids(bpe, "a\ufffd b")
    assert ids(bpe, "\ude00") == ids(bpe, "\ufffd")
    assert ids(bpe, "\ud83d\ude00") == ids(bpe, "\U0001f600")
    assert ids(bpe, "x", prefix="\ud83d") == ids(bpe, "\ufffdx")


def test_case_follows_tokenizer_json(bert: Tokenizer) -> None:
    assert ids(bert, "Dog") == ids(bert, "dog")
    assert UNK not in ids(bert, "Dog")


def test_special_token_strings_count_as_the_tokens_they_become(bert: Tokenizer) -> None:
    assert ids(bert, "[UNK]" * 14) == [CLS, *[UNK] * 14, SEP]
    assert "17 tokens" in refusal(bert, ["[UNK]" * 15]).message
    assert ids(bert, "dog[SEP]cat") == [CLS, ids(bert, "dog")[1], SEP, ids(bert, "cat")[1], SEP]


def test_prefix_is_tokenised_together_with_the_text(bert: Tokenizer) -> None:
    assert ids(bert, "bed", prefix="hot") == ids(bert, "hotbed")
    assert len(ids(bert, "hotbed")) == 3


def test_prefix_is_counted(bert: Tokenizer) -> None:
    assert "17 tokens" in refusal(bert, ["dog " * 13], prefix="query : ").message


def test_no_special_tokens_on_request(bert: Tokenizer) -> None:
    assert ids(bert, "dog", add_special_tokens=False) == ids(bert, "dog")[1:-1]
    assert len(ids(bert, "dog " * 20, add_special_tokens=False, truncate=True)) == 16
    assert len(ids(bert, "dog cat", add_special_tokens=False, truncate=True, max_tokens=1)) == 1


@pytest.mark.parametrize("max_tokens", [0, -1, 1, 2, 17, True])
def test_limit_that_cannot_be_met_is_refused(bert: Tokenizer, max_tokens: int) -> None:
    error = refusal(bert, ["dog"], max_tokens=max_tokens, truncate=True)
    assert error.param == "max_tokens"
    assert "3 to 16" in error.message


def test_lower_limit_on_request(bert: Tokenizer) -> None:
    assert len(ids(bert, "dog " * 5, max_tokens=3, truncate=True)) == 3
    assert "the limit is 3" in refusal(bert, ["dog dog"], max_tokens=3).message


def test_model_limit_without_room_for_text_is_refused_at_load(load: Load) -> None:
    with pytest.raises(HotbedError, match="no room for text"):
        load(wordpiece(), 2)
    assert load(wordpiece(), 3).encode(["dog"]).batch.num_tokens == 3


def test_endless_text_is_refused_before_it_is_tokenised(load: Load) -> None:
    tokenizer = load(wordpiece(), max_chars=100)
    assert tokenizer.encode(["a " * 50], EncodeOptions(truncate=True)).num_truncated == 1
    error = refusal(tokenizer, ["dog", "a" * 101], truncate=True)
    assert error.code is ErrorCode.TOO_LARGE
    assert error.param == "input[1]"
    assert "101" in error.message
    assert "100" in error.message


def test_another_models_tokenizer_is_refused_at_load(load: Load) -> None:
    """Its end token has no row: every request failed, the first one too, and the start did not."""
    source = byte_level_bpe(append_end=True)
    with pytest.raises(HotbedError, match=r"<\|endoftext\|>.*vocab_size is 100"):
        load(source, vocab_size=100)


def test_token_that_the_model_has_no_row_for_is_refused(load: Load) -> None:
    source = byte_level_bpe(append_end=False)
    last = source.token_to_id(END_OF_TEXT)
    tokenizer = load(source, vocab_size=last)
    assert tokenizer.encode(["the model"]).batch.num_sequences == 1
    error = refusal(tokenizer, ["a", f"b{END_OF_TEXT}"])
    assert error.param == "input[1]"
    assert str(last) in error.message


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\x00", b'{"model": {"type": "BERT"}}'])
def test_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(HotbedError, match=r"tokenizer\.json"):
        Tokenizer.load(TokenizerFiles(tokenizer_json=path), max_tokens=16, vocab_size=10)
    with pytest.raises(HotbedError, match=r"missing\.json"):
        Tokenizer.load(
            TokenizerFiles(tokenizer_json=tmp_path / "missing.json"), max_tokens=16, vocab_size=10
        )


def test_facts_of_the_tokenizer(bert: Tokenizer, load: Load) -> None:
    assert (bert.max_tokens, bert.num_special_tokens) == (16, 2)
    assert bert.vocab_size == wordpiece().get_vocab_size()
    assert bert.backend == "tokenizers"
    assert bert.us_per_kchar > 0
    assert load(byte_level_bpe(append_end=False)).num_special_tokens == 0


def test_fingerprint_follows_the_file(load: Load) -> None:
    first = load(wordpiece()).fingerprint
    assert first == load(wordpiece()).fingerprint
    assert len(first) == 16
    assert first != load(byte_level_bpe(append_end=True)).fingerprint


class FailingBackend:
    name: BackendName = "nanotoken"

    def encode(self, texts: list[str], *, add_special_tokens: bool) -> RaggedBatch:
        if any("cat" in text for text in texts):
            raise ValueError("no cats")
        return RaggedBatch.from_sequences([[7]] * len(texts))


def test_fast_backend_that_fails_on_a_text_is_not_a_failed_request(
    load: Load, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tokenizer_module, "choose_backend", lambda *_: FailingBackend())
    tokenizer = load(wordpiece(), fast="auto")
    reference = load(wordpiece())
    assert tokenizer.backend == "nanotoken"
    assert ids(tokenizer, "dog") == [7]
    with caplog.at_level(logging.WARNING, logger="hotbed.text"):
        assert ids(tokenizer, "cat") == ids(reference, "cat")
    assert [r.getMessage() for r in caplog.records] == ["nanotoken failed on a batch (ValueError)"]


def test_reference_that_fails_says_so(load: Load) -> None:
    source = HuggingFace(models.WordLevel({"dog": 0}, unk_token="[UNK]"))  # [UNK] is no token
    source.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(Exception, match="UNK"):
        load(source)


def test_threads_get_the_same_ids(bpe: Tokenizer) -> None:
    texts = [f"the model {i} of text {i * i}" for i in range(50)]
    options = EncodeOptions(truncate=True)
    expected = rows(bpe.encode(texts, options).batch)
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(bpe.encode, texts, options) for _ in range(20)]
        assert all(rows(f.result().batch) == expected for f in futures)


def test_other_threads_run_while_a_long_text_is_tokenised(load: Load) -> None:
    """With a switch interval of minutes, this thread gets the GIL only if `encode` lets it go."""
    tokenizer = load(byte_level_bpe(append_end=True), max_tokens=10**6)
    text = "0123456789 " * 50_000
    started, done = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        tokenizer.encode([text])
        done.set()

    thread = threading.Thread(target=work)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(600)
    try:
        thread.start()
        started.wait()
        assert not done.is_set()
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    assert done.is_set()


def test_described_tokens_are_those_that_encode_gives(bpe: Tokenizer) -> None:
    texts = ["the cat", "naïve 😀", "\ud83d half"]
    for text, tokens in zip(texts, bpe.describe(texts), strict=True):
        assert [t.id for t in tokens] == bpe.encode([text]).batch.token_ids.tolist()
    (tokens,) = bpe.describe(["cat"], prefix="the ")
    assert [t.id for t in tokens] == bpe.encode(
        ["cat"], EncodeOptions(prefix="the ")
    ).batch.token_ids.tolist()


def test_ids_decode_to_the_text_they_came_from(bpe: Tokenizer) -> None:
    ids = [bpe.encode([text]).batch.token_ids.tolist() for text in ("the cat", "naïve 😀")]
    assert bpe.decode(ids, skip_special_tokens=True) == ["the cat", "naïve 😀"]
    with pytest.raises(HotbedError, match=r"input\[0\]\[0\] is -1"):
        bpe.decode([[-1]])


def test_measuring_says_which_texts_are_wrong_instead_of_refusing_them(bert: Tokenizer) -> None:
    long = "fox " * 400
    measured = bert.measure(["fox", "", " \n", "\x00", long, "dog \ud83e"])
    assert measured.blank.tolist() == [False, True, True, True, False, False]
    assert not measured.unknown.any()
    assert measured.lengths[4] > bert.max_tokens
    truncated = bert.encode(["fox", long, "dog \ud83e"], EncodeOptions(truncate=True)).batch
    assert rows(measured.batch.select([0, 4, 5])) == rows(truncated)
