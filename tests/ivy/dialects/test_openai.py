"""Reading request bodies. What is wrong over HTTP is in test_embeddings_bad.py."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.output import OutputSpec
from hotbed.ivy.dialects.openai import FIELDS, _read, to_request


def decode(body: bytes | str | dict, *, max_inputs: int = 2048, is_pplx_model: bool = False):
    if isinstance(body, dict):
        body = json.dumps(body)
    if isinstance(body, str):
        body = body.encode()
    request, encoding, _ = to_request(
        _read(body), is_pplx_model=is_pplx_model, max_inputs=max_inputs
    )
    return request, encoding


@pytest.mark.parametrize(
    ("value", "texts", "arrays", "is_single"),
    [
        ("a", ["a"], None, True),
        (["a", "b"], ["a", "b"], None, False),
        ([1, 2], None, [[1, 2]], True),
        ([[1], [2, 3]], None, [[1], [2, 3]], False),
        ([{"text": "a"}, {"text": "b"}], ["a", "b"], None, False),
    ],
)
def test_the_forms_of_input(value, texts, arrays, is_single):
    request, encoding = decode({"input": value})
    assert (request.texts, request.token_arrays, request.is_single) == (texts, arrays, is_single)
    assert encoding == "float"


def test_null_is_the_same_as_absent():
    nulls = dict.fromkeys(FIELDS)
    assert decode({**nulls, "input": "a"}) == decode({"input": "a"})


def test_every_option_arrives():
    body = {
        "input": ["a"], "model": "model", "encoding_format": "base64", "dimensions": 8,
        "user": "u", "input_type": "query", "prompt_name": "p", "truncate": True,
        "truncation_side": "left", "normalize": False,
    }  # fmt: skip
    others = {"task", "embedding_type", "normalized", "late_chunking"}  # Jina
    others |= {"truncate_prompt_tokens", "add_special_tokens", "use_activation"}  # vLLM
    others |= {"priority", "request_id", "cache_salt"}
    assert set(body) | others == set(FIELDS)
    request, encoding = decode(body)
    assert encoding == "base64"
    assert request.spec == OutputSpec(dimensions=8, normalize=False)
    assert (request.input_type, request.prompt_name) == ("query", "p")
    assert (request.truncate, request.truncation_side) == (True, "left")


@pytest.mark.parametrize("name", ["normalize", "normalized", "use_activation"])
@pytest.mark.parametrize("value", [True, False])
def test_every_dialects_word_for_normalising(name: str, value: bool):
    assert decode({"input": "a", name: value})[0].spec.normalize is value


def test_the_last_of_two_equal_keys_counts():
    request, _ = decode('{"input": "a", "input": "b"}')
    assert request.texts == ["b"]


def test_the_most_inputs_are_2048():
    assert decode({"input": ["a"] * 2048})[0].num_inputs == 2048
    with pytest.raises(HotbedError) as caught:
        decode({"input": ["a"] * 2049})
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert caught.value.param == "input"
    assert "2049" in caught.value.message
    assert "2048" in caught.value.message


def test_one_long_list_of_ids_is_one_input():
    assert decode({"input": [1] * 5000})[0].num_inputs == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\ud83d", "�"),
        (r"\uDE00 x", "� x"),
        (r"a\ud83d\ud83d\ude00b", "a�😀b"),
        (r"\\ud83d \ud83d", "\\ud83d �"),
        (r"\ud83dA", "�A"),
    ],
)
def test_half_an_emoji_becomes_the_replacement_character(text, expected):
    request, _ = decode('{"input": ["' + text + '", "b"]}')
    assert request.texts == [expected, "b"]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from([r"\ud83d", r"\ude00", "a", r"\\", r"\n", "ud83d", r"A", "é", r"\""]),
        min_size=1,
        max_size=8,
    )
)
def test_escapes_are_read_as_the_standard_library_reads_them(pieces):
    literal = '"' + "".join(pieces) + '"'
    whole = json.loads(literal)
    expected = "".join("�" if 0xD800 <= ord(c) < 0xE000 else c for c in whole)
    assert decode('{"input": ' + literal + "}")[0].texts == [expected]


def test_messages_hold_no_text_of_the_request():
    secret = "hunter2"
    for body in (
        {"input": [secret, 1]},
        {"input": [[secret]]},
        {"input": "a", "encoding_format": secret},
        {"input": "a", "truncate": secret},
        f'{{"input": "{secret}"',
    ):
        with pytest.raises(HotbedError) as caught:
            decode(body)
        assert secret not in caught.value.message
