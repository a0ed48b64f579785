from __future__ import annotations

import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.text.tokenizer import EncodeOptions, Tokenizer

CLS, SEP = 2, 3


def check(tokenizer: Tokenizer, arrays: object, **options: object) -> list[list[int]]:
    batch = tokenizer.check_token_arrays(arrays, EncodeOptions(**options)).batch  # type: ignore[arg-type]
    return [batch.sequence(i).tolist() for i in range(batch.num_sequences)]


def refusal(tokenizer: Tokenizer, arrays: object, **options: object) -> HotbedError:
    with pytest.raises(HotbedError) as caught:
        check(tokenizer, arrays, **options)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    return caught.value


def test_ids_are_taken_as_they_are(bert: Tokenizer) -> None:
    arrays = [[5], [CLS, 7, SEP], (0, bert.vocab_size - 1)]
    assert check(bert, arrays) == [[5], [CLS, 7, SEP], [0, bert.vocab_size - 1]]


@pytest.mark.parametrize(
    "bad", [-1, 100_000, 2**31, 2**32 + 5, 2**63, -(2**63) - 1, pytest.param(10**5000, id="huge")]
)
def test_id_of_another_vocabulary_is_refused_with_the_langchain_hint(
    bert: Tokenizer, bad: int
) -> None:
    error = refusal(bert, [[5], [6, 7, bad]])
    assert error.param == "input[1]"
    assert "input[1][2]" in error.message
    assert str(bert.vocab_size) in error.message
    assert "check_embedding_ctx_length=False" in error.message
    if abs(bad) < 2**63:
        assert str(bad) in error.message


def test_first_id_past_the_vocabulary_is_refused(bert: Tokenizer) -> None:
    assert "input[0][0]" in refusal(bert, [[bert.vocab_size]]).message


@pytest.mark.parametrize("bad", [True, False, 1.0, float("nan"), None, "1", [1], {}])
def test_anything_but_an_integer_is_refused(bert: Tokenizer, bad: object) -> None:
    error = refusal(bert, [[5, 6], [7, bad]])
    assert error.param == "input[1]"
    assert "input[1][1]" in error.message


@pytest.mark.parametrize("bad", [[], ()])
def test_empty_array_is_refused(bert: Tokenizer, bad: object) -> None:
    assert refusal(bert, [[5], bad, []]).param == "input[1]"


def test_no_array_is_refused(bert: Tokenizer) -> None:
    assert refusal(bert, []).param == "input"


@pytest.mark.parametrize("bad", [5, "ab", None, {5: 6}])
def test_list_of_mixed_things_is_refused(bert: Tokenizer, bad: object) -> None:
    assert refusal(bert, [[5], bad]).param == "input[1]"


def test_prompt_before_ids_is_refused(bert: Tokenizer) -> None:
    assert "prompt" in refusal(bert, [[5]], prefix="query: ").message


@pytest.mark.parametrize("length", [15, 16, 17])
def test_array_of_exactly_the_limit_passes(bert: Tokenizer, length: int) -> None:
    array = [5] * length
    if length <= 16:
        assert check(bert, [array]) == [array]
    else:
        error = refusal(bert, [[5], array])
        assert error.param == "input[1]"
        assert "17 tokens" in error.message
        assert "16" in error.message
    assert check(bert, [array], truncate=True) == [array[:16]]


@pytest.mark.parametrize(
    ("array", "side", "expected"),
    [
        ([5, 6, 7, 8, 9], "right", [5, 6, 7, 8]),
        ([5, 6, 7, 8, 9], "left", [6, 7, 8, 9]),
        ([CLS, 5, 6, 7, SEP], "right", [CLS, 5, 6, SEP]),
        ([CLS, 5, 6, 7, SEP], "left", [CLS, 6, 7, SEP]),
        ([5, 6, 7, 8, SEP], "right", [5, 6, 7, SEP]),
        ([CLS, 5, 6, 7, 8], "left", [CLS, 6, 7, 8]),
    ],
)
def test_truncation_keeps_the_models_own_special_ids(
    bert: Tokenizer, array: list[int], side: str, expected: list[int]
) -> None:
    assert check(bert, [array], truncate=True, max_tokens=4, truncation_side=side) == [expected]


def test_text_and_its_ids_give_the_same_batch(bert: Tokenizer) -> None:
    texts = ["the cat", "a dog and a house"]
    batch = bert.encode(texts).batch
    assert check(bert, [batch.sequence(i).tolist() for i in range(2)]) == [
        batch.sequence(i).tolist() for i in range(2)
    ]
