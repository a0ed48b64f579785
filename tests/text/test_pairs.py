"""Pairs of texts: the ids, types and cuts that `transformers` gives, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import processors
from transformers import AutoTokenizer

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.text.pairs import PairFields, PairOptions, PairTokenizer
from hotbed.text.qwen3_reranker import DEFAULT_INSTRUCTION, PREFIX, SUFFIX
from hotbed.text.tokenizer import Tokenizer
from tests.support.scorers import make_bert_scorer, make_qwen3_reranker

QUERY = "the fast cat"
DOCUMENTS = ["a dog is long.", "the [SEP] token", " the  house\n", "embedding " * 200, "日本 é"]


def load(folder: Path, **options: Any) -> PairTokenizer:
    checkpoint = load_checkpoint(str(folder))
    assert checkpoint.head is not None
    tokenizer = Tokenizer.load(
        checkpoint.tokenizer,
        max_tokens=checkpoint.max_tokens,
        vocab_size=checkpoint.config.vocab_size,
        **options,
    )
    return PairTokenizer(tokenizer, checkpoint.head)


@pytest.fixture(scope="module")
def bert_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert_scorer(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def bert(bert_folder: Path) -> PairTokenizer:
    return load(bert_folder)


@pytest.fixture(scope="module")
def qwen_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_qwen3_reranker(tmp_path_factory.mktemp("qwen") / "reranker")


@pytest.fixture(scope="module")
def qwen(qwen_folder: Path) -> PairTokenizer:
    return load(qwen_folder)


@pytest.mark.parametrize("fast", ["auto", "off"])
def test_ids_types_and_cut_are_those_of_transformers(bert_folder: Path, fast: str) -> None:
    """Cut as ``truncation="only_second"`` does: the document alone."""
    pairs, reference = load(bert_folder, fast=fast), AutoTokenizer.from_pretrained(bert_folder)
    encoded = pairs.encode(QUERY, DOCUMENTS)
    batch = encoded.batch
    assert batch.pair_starts is not None
    assert encoded.num_truncated == 1
    for i, document in enumerate(DOCUMENTS):
        expected = reference(
            QUERY, document, truncation="only_second", max_length=128, return_token_type_ids=True
        )
        assert batch.sequence(i).tolist() == expected["input_ids"]
        types = np.arange(batch.lengths[i]) >= batch.pair_starts[i]
        assert types.astype(int).tolist() == expected["token_type_ids"]


def test_one_query_a_document_is_the_same_as_one_by_one(bert: PairTokenizer) -> None:
    queries = [QUERY, "a", "the house", QUERY, "of"]
    together = bert.encode(queries, DOCUMENTS).batch
    for i, (query, document) in enumerate(zip(queries, DOCUMENTS, strict=True)):
        alone = bert.encode(query, [document]).batch
        assert together.sequence(i).tolist() == alone.token_ids.tolist()
        assert together.pair_starts is not None
        assert alone.pair_starts is not None
        assert together.pair_starts[i] == alone.pair_starts[0]


def test_a_left_cut_keeps_the_documents_end(bert: PairTokenizer) -> None:
    document = "a " * 300 + "the house"
    options = PairOptions(truncation_side="left")
    ids = bert.encode(QUERY, [document], options).batch.token_ids.tolist()
    whole = bert.encode(QUERY, ["the house"]).batch.token_ids.tolist()
    assert len(ids) == 128
    assert ids[:5] == whole[:5]
    assert ids[-3:] == whole[-3:]


def test_a_documents_own_limit_cuts_it_also_where_it_would_fit(bert: PairTokenizer) -> None:
    options = PairOptions(max_document_tokens=2)
    encoded = bert.encode(QUERY, ["a dog is long", "a dog"], options)
    assert encoded.num_truncated == 1
    assert encoded.batch.sequence(0).tolist() == encoded.batch.sequence(1).tolist()


@pytest.mark.parametrize("num_words", [121, 122, 123])
def test_around_the_limit(bert: PairTokenizer, num_words: int) -> None:
    """Limit - 1, limit, limit + 1 (tokenizers 174, ST 3787): three words and three specials."""
    document = "a " * num_words
    encoded = bert.encode(QUERY, [document])
    assert encoded.batch.num_tokens == min(128, num_words + 6)
    assert encoded.num_truncated == (num_words > 122)
    options = PairOptions(truncate=False)
    if num_words <= 122:
        bert.encode(QUERY, [document], options)
        return
    with pytest.raises(HotbedError, match=r"documents\[0\] has 129 tokens, the limit is 128"):
        bert.encode(QUERY, [document], options)


@pytest.mark.parametrize("truncate", [True, False])
def test_a_query_that_leaves_no_room_is_refused_with_both_numbers(
    bert: PairTokenizer, truncate: bool
) -> None:
    bert.encode("a " * 124, ["a dog"], PairOptions())
    options = PairOptions(truncate=truncate, fields=PairFields(query="query"))
    with pytest.raises(HotbedError, match=r"query has 125 tokens .* 3, the limit is 128") as caught:
        bert.encode("a " * 125, ["a dog"], options)
    assert caught.value.param == "query"


def test_errors_name_the_text_in_the_requests_words(bert: PairTokenizer) -> None:
    fields = PairFields("text_1[{}]", "text_2[{}]")
    with pytest.raises(HotbedError) as caught:
        bert.encode(["a", " "], ["b", "c"], PairOptions(fields=fields), first_index=7)
    assert caught.value.param == "text_1[8]"
    with pytest.raises(HotbedError) as caught:
        bert.encode(["a", "b"], ["b", "\0"], PairOptions(fields=fields), first_index=7)
    assert caught.value.param == "text_2[8]"
    assert caught.value.code is ErrorCode.INVALID_INPUT


def test_a_lone_surrogate_becomes_a_replacement_character(qwen: PairTokenizer) -> None:
    broken = qwen.encode("a \ud83d", ["\ude00 b"]).batch
    whole = qwen.encode("a \ufffd", ["\ufffd b"]).batch
    assert broken.token_ids.tolist() == whole.token_ids.tolist()


def test_an_instruction_for_a_model_without_a_template_is_refused(bert: PairTokenizer) -> None:
    with pytest.raises(HotbedError) as caught:
        bert.encode("a", ["b"], PairOptions(instruction="find"))
    assert caught.value.param == "instruction"


def test_xlm_rs_two_separators_and_no_types(bert_folder: Path, tmp_path: Path) -> None:
    """``<s> q </s></s> d </s>``; transformers 2727: types where the model has one only."""
    folder = make_bert_scorer(tmp_path / "m", type_vocab_size=1)
    tokenizer = HfTokenizer.from_file(str(folder / "tokenizer.json"))
    cls, sep = (tokenizer.token_to_id(t) for t in ("[CLS]", "[SEP]"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] [SEP] $B [SEP]",
        special_tokens=[("[CLS]", cls), ("[SEP]", sep)],
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    batch = load(folder).encode("a", ["b c"]).batch
    assert batch.token_ids.tolist() == tokenizer.encode("a", "b c").ids
    assert batch.token_ids.tolist().count(sep) == 3
    assert batch.pair_starts is None


def _with_types(folder: Path, pair: str) -> Path:
    tokenizer = HfTokenizer.from_file(str(folder / "tokenizer.json"))
    specials = [(t, tokenizer.token_to_id(t)) for t in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair=pair, special_tokens=specials
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_a_tokenizer_that_gives_one_type_is_followed(tmp_path: Path) -> None:
    folder = _with_types(make_bert_scorer(tmp_path / "m"), "[CLS] $A:0 [SEP] $B:0 [SEP]:0")
    assert load(folder).encode("a", ["b c"]).batch.pair_starts is None


def test_types_that_are_not_first_then_second_are_refused(tmp_path: Path) -> None:
    """ferrox 44: types the wrong way round, or of other numbers, are not guessed at."""
    for number, pair in enumerate(
        ("[CLS]:1 $A:1 [SEP]:1 $B:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:2 [SEP]:2")
    ):
        folder = _with_types(make_bert_scorer(tmp_path / str(number)), pair)
        with pytest.raises(HotbedError, match="token type"):
            load(folder)


def test_a_template_that_leaves_no_room_is_refused(tmp_path: Path) -> None:
    folder = make_bert_scorer(tmp_path / "m", max_position_embeddings=4)
    with pytest.raises(HotbedError, match="max_tokens is 4, but the template of a pair has 3"):
        load(folder)


def _model_cards_ids(folder: Path, instruction: str, query: str, document: str) -> list[int]:
    """As the model card of Qwen3-Reranker makes them, without truncation."""
    body = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    return [i for text in (PREFIX, body, SUFFIX) for i in _bare(folder, text)]


def _bare(folder: Path, text: str) -> list[int]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


@pytest.mark.parametrize("fast", ["auto", "off"])
@pytest.mark.parametrize("instruction", [None, "Find the opposite"])
def test_qwens_template_is_the_model_cards(
    qwen_folder: Path, instruction: str | None, fast: str
) -> None:
    pairs = load(qwen_folder, fast=fast)
    documents = ["a dog is long.", "  two spaces", "\nline", "<|im_end|> inside", "1. é"]
    batch = pairs.encode(QUERY, documents, PairOptions(instruction=instruction)).batch
    assert batch.pair_starts is None
    assert pairs.default_instruction == DEFAULT_INSTRUCTION
    for i, document in enumerate(documents):
        expected = _model_cards_ids(
            qwen_folder, instruction or DEFAULT_INSTRUCTION, QUERY, document
        )
        assert batch.sequence(i).tolist() == expected


@pytest.mark.parametrize("side", ["left", "right"])
def test_qwens_template_is_never_cut(qwen: PairTokenizer, qwen_folder: Path, side: Any) -> None:
    """ST 3787: a long document cut the suffix off, and yes and no were read from anywhere."""
    document = "dog " * 600
    ids = qwen.encode(QUERY, [document], PairOptions(truncation_side=side)).batch.token_ids.tolist()
    short = qwen.encode(QUERY, ["dog"]).batch.token_ids.tolist()
    assert len(ids) == 512
    num_suffix = len(_bare(qwen_folder, SUFFIX))
    assert ids[-num_suffix:] == short[-num_suffix:]
    num_head = len(short) - num_suffix - len(_bare(qwen_folder, " dog"))
    assert ids[:num_head] == short[:num_head]
