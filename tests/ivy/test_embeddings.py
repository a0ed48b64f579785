"""POST /v1/embeddings over real HTTP: what a right request gets."""

from __future__ import annotations

import base64
import re

import httpx
import msgspec
import numpy as np
import pytest
import pytest_asyncio

from hotbed.core.output import OutputSpec
from hotbed.ivy.dialects.openai import EmbeddingsAnswer
from hotbed.text.tokenizer import EncodeOptions
from hotbed.tulip.testing import FakeEngine
from tests.ivy.conftest import MAX_TOKENS
from tests.ivy.harness import (
    MODEL,
    expected_for,
    info_for,
    model_for,
    real_tulip,
    rows_of,
    serving,
    settings_for,
    unix_address,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORDS = ["the", "cat", "is", "a", "fast", "dog", "and", "it", "was", "not", "in", "this", "house"]


def texts(count: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=rng.integers(1, 50))) for _ in range(count)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tulip(tokenizer, tmp_path_factory):
    """The real service; its address, and the (sequences, tokens) of its steps."""
    address = unix_address(tmp_path_factory.mktemp("good"))
    engine = FakeEngine(info_for(tokenizer))
    async with real_tulip(engine, address):
        yield address, engine.steps


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tokenizer, tulip):
    settings = settings_for(tulip[0])
    async with serving(settings, model_for(tokenizer)) as ivy, ivy.client() as client:
        yield client


async def embed(client: httpx.AsyncClient, value, **fields) -> httpx.Response:
    answer = await client.post("/v1/embeddings", json={"input": value, **fields})
    assert answer.status_code == 200, answer.text
    msgspec.json.decode(answer.content, type=EmbeddingsAnswer)
    return answer


async def test_a_text_gets_its_row_its_usage_and_its_headers(client, tokenizer):
    answer = await embed(client, "The cat.", model="tiny", user="someone")
    rows, num_tokens = expected_for(tokenizer, ["The cat."])
    assert np.array_equal(rows_of(answer.json()), rows)
    assert answer.json()["model"] == MODEL
    assert answer.json()["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    assert answer.headers["content-type"] == "application/json"
    assert re.fullmatch("[0-9a-f]{16}", answer.headers["x-hotbed-fingerprint"])
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])
    assert re.fullmatch(
        r"tokenize;dur=[\d.]+, queue;dur=[\d.]+, device;dur=[\d.]+, total;dur=[\d.]+",
        answer.headers["server-timing"],
    )


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embeddings", "/v1/embeddings/"])
async def test_paths_with_and_without_v1_and_a_trailing_slash(client, path):
    # Case 133.
    assert (await client.post(path, json={"input": "a"})).status_code == 200


async def test_answer_i_belongs_to_input_i_when_the_request_is_cut_into_chunks(
    client, tokenizer, tulip
):
    # Cases 15 and 16.
    inputs = texts(300)
    before = len(tulip[1])
    answer = await embed(client, inputs)
    rows, num_tokens = expected_for(tokenizer, inputs)
    assert np.array_equal(rows_of(answer.json()), rows)
    assert answer.json()["usage"]["total_tokens"] == num_tokens
    steps = list(tulip[1])[before:]
    assert sum(sequences for sequences, _ in steps) == 300
    assert max(tokens for _, tokens in steps) <= 256


async def test_the_most_inputs_a_request_may_have(client, tokenizer):
    inputs = texts(2048, seed=1)
    answer = await embed(client, inputs, encoding_format="base64")
    rows = [np.frombuffer(base64.b64decode(r["embedding"]), "<f4") for r in answer.json()["data"]]
    assert np.array_equal(np.array(rows), expected_for(tokenizer, inputs)[0])


async def test_base64_is_the_same_numbers(client):
    # Case 55: base64 asked for, a list of floats sent.
    plain = await embed(client, ["the cat", "a dog"])
    packed = await embed(client, ["the cat", "a dog"], encoding_format="base64")
    rows = [np.frombuffer(base64.b64decode(r["embedding"]), "<f4") for r in packed.json()["data"]]
    assert np.array_equal(np.array(rows), rows_of(plain.json()))


@pytest.mark.parametrize("dimensions", [1, 7, 31, 32, None])
async def test_dimensions_are_cut_then_normalised(client, tokenizer, dimensions):
    # Cases 46 and 48: the native number is accepted on every model.
    answer = await embed(client, ["the cat"], dimensions=dimensions)
    rows, _ = expected_for(tokenizer, ["the cat"], OutputSpec(dimensions=dimensions or 0))
    assert rows_of(answer.json()).shape == (1, dimensions or 32)
    assert np.array_equal(rows_of(answer.json()), rows)


async def test_normalising_can_be_switched_off(client, tokenizer):
    answer = await embed(client, ["the cat"], normalize=False)
    rows, _ = expected_for(tokenizer, ["the cat"], OutputSpec(normalize=False))
    assert np.array_equal(rows_of(answer.json()), rows)
    assert not np.isclose(np.linalg.norm(rows), 1)


@pytest.mark.parametrize(
    ("fields", "prefix"),
    [
        ({"input_type": "query"}, "query: "),
        ({"input_type": "document"}, "passage: "),
        ({"prompt_name": "document"}, "passage: "),
        ({}, ""),
    ],
)
async def test_prompts_go_before_texts(client, tokenizer, fields, prefix):
    answer = await embed(client, ["the cat", "a dog"], **fields)
    rows, num_tokens = expected_for(
        tokenizer, ["the cat", "a dog"], options=EncodeOptions(prefix=prefix)
    )
    assert np.array_equal(rows_of(answer.json()), rows)
    assert answer.json()["usage"]["prompt_tokens"] == num_tokens


@pytest.mark.parametrize("side", ["left", "right", None])
@pytest.mark.parametrize("is_list", [True, False])
async def test_truncation_is_the_same_for_a_bare_text_and_a_list(client, tokenizer, side, is_list):
    # Case 85.
    text = "the cat is in the house " * 30
    value = [text] if is_list else text
    answer = await embed(client, value, truncate=True, truncation_side=side)
    options = EncodeOptions(truncate=True, truncation_side=side or "right")
    rows, num_tokens = expected_for(tokenizer, [text], options=options)
    assert num_tokens == MAX_TOKENS
    assert np.array_equal(rows_of(answer.json()), rows)
    assert answer.json()["usage"]["prompt_tokens"] == MAX_TOKENS


async def test_token_ids_are_taken_as_they_are(client, tokenizer):
    # Case 71.
    ids = tokenizer.encode(["the cat"]).batch.token_ids.tolist()
    by_text = await embed(client, "the cat")
    assert (await embed(client, ids)).content == by_text.content
    assert (await embed(client, [ids])).content == by_text.content


async def test_a_bare_input_and_a_list_of_one_give_the_same_answer(client):
    # Case 74: a bare string was 422.
    assert (await embed(client, "x")).content == (await embed(client, ["x"])).content


async def test_white_space_around_a_text_is_left_alone(client, tokenizer):
    # Case 75. (BERT's tokenizer ignores it; what counts is that nothing else changes it.)
    answer = await embed(client, " the cat ")
    assert np.array_equal(rows_of(answer.json()), expected_for(tokenizer, [" the cat "])[0])


async def fingerprint(client, value="a", **fields) -> str:
    return (await embed(client, value, **fields)).headers["x-hotbed-fingerprint"]


async def test_the_fingerprint_is_that_of_the_recipe(client):
    plain = await fingerprint(client)
    for same in (
        {"value": ["b", "c"]},
        {"encoding_format": "base64"},
        {"dimensions": 32},
        {"normalize": True},
        {"value": [7, 8]},
    ):
        assert await fingerprint(client, **same) == plain, same
    others = [
        await fingerprint(client, **fields)
        for fields in (
            {"dimensions": 8},
            {"normalize": False},
            {"input_type": "query"},
            {"add_special_tokens": False},
            {"late_chunking": True},
        )
    ]
    assert len({plain, *others}) == 6


async def test_a_sane_request_id_is_echoed_another_replaced(client):
    async def echoed(value: str) -> str:
        answer = await client.post(
            "/v1/embeddings", json={"input": "a"}, headers={"X-Request-Id": value}
        )
        return answer.headers["x-request-id"]

    assert await echoed("req-42/a.b:c") == "req-42/a.b:c"
    assert await echoed("x" * 500) != "x" * 500
    assert await echoed("a b") != "a b"


async def test_an_error_has_the_request_id_too(client):
    answer = await client.post("/v1/embeddings", json={}, headers={"X-Request-Id": "mine"})
    assert answer.status_code == 400
    assert answer.headers["x-request-id"] == "mine"
