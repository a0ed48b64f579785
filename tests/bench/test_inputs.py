"""Inputs have exactly the tokens that their cell names, as the model's tokenizer counts."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from hotbed.bench.cells import Cell, cells
from hotbed.bench.inputs import Inputs
from hotbed.bench.stand_ins import byte_level_bpe, unigram
from hotbed.core.errors import HotbedError

CORPUS = " ".join(
    f"Sentence {i}: the größte number was {i * i % 977}, they say." for i in range(900)
)


@pytest.fixture(params=[byte_level_bpe, unigram])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    made: Tokenizer = request.param(CORPUS.split(". "), max_vocab=2000)
    return made


@pytest.mark.parametrize("num_tokens", [3, 17, 128, 700])
def test_texts_have_exactly_the_tokens_asked_for(num_tokens: int, tokenizer: Tokenizer) -> None:
    texts = Inputs(tokenizer, CORPUS).of(num_tokens, 5)
    assert len({t.text for t in texts}) == 5
    for text in texts:
        assert len(text.ids) == num_tokens
        assert tuple(tokenizer.encode(text.text).ids) == text.ids
        assert text.text in CORPUS


def test_special_tokens_count(tokenizer: Tokenizer) -> None:
    (text,) = Inputs(tokenizer, CORPUS).of(9, 1)
    has_template = tokenizer.num_special_tokens_to_add(is_pair=False) == 2
    assert (text.ids[0] == 0 and text.ids[-1] == 2) == has_template


def test_a_tokenizer_that_pads_or_cuts_is_told_not_to(tokenizer: Tokenizer) -> None:
    tokenizer.enable_padding(length=64)
    tokenizer.enable_truncation(16)
    assert len(Inputs(tokenizer, CORPUS).of(40, 1)[0].ids) == 40


def test_the_same_texts_come_again(tokenizer: Tokenizer) -> None:
    inputs = Inputs(tokenizer, CORPUS)
    first = inputs.of(20, 3)
    assert inputs.of(20, 5)[:3] == first
    assert Inputs(tokenizer, CORPUS).of(20, 3) == first


def test_a_cells_requests_have_its_size(tokenizer: Tokenizer) -> None:
    requests = Inputs(tokenizer, CORPUS).of_cell(Cell("scoring", "offline", 5, 32))
    assert [len(r) for r in requests] == [5] * 4
    assert {len(t.ids) for r in requests for t in r} == {32}
    assert len({t.ids for r in requests for t in r}) == 20


def test_a_corpus_that_is_too_short_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(HotbedError, match="the texts have 2 words, inputs of 64 tokens need more"):
        Inputs(tokenizer, "two words").of(64, 1)


def test_the_full_suites_are_those_that_were_published() -> None:
    found = cells(
        ("latency", "scoring", "throughput", "concurrency"), "full", task="embed", num_clients=4
    )
    assert [str(cell) for cell in found] == [
        "latency 1 x 128 (offline)",
        "latency 1 x 512 (offline)",
        "latency 1 x 4096 (offline)",
        "scoring 5 x 512 (offline)",
        "scoring 25 x 512 (offline)",
        "scoring 50 x 512 (offline)",
        "concurrency 1 x 512 (http)",
        "concurrency 1 x 512, 2 at a time (http)",
        "concurrency 1 x 512, 4 at a time (http)",
        "concurrency 1 x 512, 8 at a time (http)",
        "concurrency 1 x 512, 16 at a time (http)",
        "throughput 100 x 512, 4 at a time (clients)",
        "throughput 100 x 512 (offline)",
        "throughput 100 x 1024, 4 at a time (clients)",
        "throughput 100 x 1024 (offline)",
        "throughput 100 x 4096, 4 at a time (clients)",
        "throughput 100 x 4096 (offline)",
    ]


def test_a_model_that_scores_is_asked_in_its_process_alone() -> None:
    found = cells(("scoring", "concurrency", "throughput"), "full", task="score", num_clients=4)
    assert {cell.way for cell in found} == {"offline"}
