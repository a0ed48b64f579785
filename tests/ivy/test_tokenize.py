"""The tokenising stage: inline or in threads, the same answer and the same errors."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from hotbed.core.errors import HotbedError
from hotbed.ivy.tokenize import TokenizeStage
from hotbed.text.tokenizer import EncodeOptions, Tokenizer


class Spy:
    """A tokenizer that notes on which threads it ran and how many texts it got."""

    def __init__(self, inner: Tokenizer) -> None:
        self.inner = inner
        self.calls: list[tuple[str, int]] = []

    def estimate_us(self, texts):
        return sum(10 + len(text) for text in texts)

    def encode(self, texts, options):
        self.calls.append((threading.current_thread().name, len(texts)))
        return self.inner.encode(texts, options)

    def check_token_arrays(self, arrays, options):
        self.calls.append((threading.current_thread().name, len(arrays)))
        return self.inner.check_token_arrays(arrays, options)


@pytest.fixture
def spy(tokenizer: Tokenizer) -> Spy:
    return Spy(tokenizer)


@pytest.fixture
def stage(spy: Spy):
    stage = TokenizeStage(spy, num_threads=2)  # type: ignore[arg-type]
    yield stage
    stage.close()


MAIN = threading.current_thread().name


async def test_small_work_runs_inline(stage, spy):
    await stage.encode(["the cat"], EncodeOptions())
    assert spy.calls == [(MAIN, 1)]


async def test_large_work_runs_in_pieces_on_the_threads_and_comes_back_in_order(stage, spy):
    texts = [f"the cat {'is long ' * (i % 40)}" for i in range(200)]
    options = EncodeOptions(truncate=True)
    batch = await stage.encode(texts, options)
    expected = spy.inner.encode(texts, options).batch
    assert np.array_equal(batch.token_ids, expected.token_ids)
    assert np.array_equal(batch.cu_seqlens, expected.cu_seqlens)
    assert len(spy.calls) > 2
    assert sum(count for _, count in spy.calls) == 200
    assert all(name.startswith("tokenize") for name, _ in spy.calls)


async def test_an_error_in_a_later_piece_names_the_index_of_the_whole_request(stage, spy):
    texts = ["the cat is long"] * 3000
    texts[2500] = ""
    with pytest.raises(HotbedError) as caught:
        await stage.encode(texts, EncodeOptions())
    assert len(spy.calls) > 1
    assert caught.value.param == "input[2500]"
    assert "input[2500]" in caught.value.message


async def test_large_token_arrays_are_checked_on_a_thread(stage, spy):
    await stage.check([[7, 8]], EncodeOptions())
    arrays = [[7] * 60] * 1000
    batch = await stage.check(arrays, EncodeOptions())
    assert batch.num_sequences == 1000
    assert spy.calls[0] == (MAIN, 1)
    assert spy.calls[1][0].startswith("tokenize")


def test_pieces_cover_all_texts_once(stage):
    for lengths in ([1], [30_000], [1, 30_000, 1], [3000] * 17, [10] * 5000):
        texts = ["x" * n for n in lengths]
        pieces = stage._cut(texts)
        assert [t for _, part in pieces for t in part] == texts
        assert [start for start, _ in pieces] == [
            sum(len(part) for _, part in pieces[:i]) for i in range(len(pieces))
        ]
        assert all(part for _, part in pieces)
