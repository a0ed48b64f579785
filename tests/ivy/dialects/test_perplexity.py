"""Perplexity's dialect on /v1/embeddings."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from hotbed.core.output import OutputDtype, OutputSpec
from tests.ivy.dialects.conftest import PPLX
from tests.ivy.harness import expected_for

pytestmark = pytest.mark.asyncio(loop_scope="package")
TEXTS = ["the cat", "a fast dog"]


async def post(client, value=TEXTS, **fields):
    return await client.post("/v1/embeddings", json={"input": value, "model": PPLX, **fields})


def decoded(answer, dtype) -> np.ndarray:
    assert answer.status_code == 200, answer.text
    rows = [row["embedding"] for row in answer.json()["data"]]
    return np.array([np.frombuffer(base64.b64decode(row), dtype) for row in rows])


@pytest.mark.parametrize("fields", [{}, {"encoding_format": "base64_int8"}])
async def test_int8_is_what_its_models_answer(client, tokenizer, fields):
    answer = await post(client, **fields)
    spec = OutputSpec(dtype=OutputDtype.INT8)
    assert np.array_equal(decoded(answer, np.int8), expected_for(tokenizer, TEXTS, spec)[0])
    usage = answer.json()["usage"]
    assert usage["cost"] == {"input_cost": 0.0, "total_cost": 0.0, "currency": "USD"}
    assert usage["prompt_tokens"] == usage["total_tokens"] > 0


async def test_bits_have_the_first_dimension_in_the_least_significant_place(client, tokenizer):
    answer = await post(client, encoding_format="base64_binary", dimensions=16)
    rows, _ = expected_for(tokenizer, TEXTS, OutputSpec(dimensions=16))
    bits = np.unpackbits(decoded(answer, np.uint8), axis=1, bitorder="little")
    assert np.array_equal(bits, rows >= 0)


async def test_other_clients_still_get_floats_from_its_models(client, tokenizer):
    rows, _ = expected_for(tokenizer, TEXTS, OutputSpec(normalize=False))
    packed = await post(client, encoding_format="base64")  # as OpenAI's SDK asks by itself
    assert np.array_equal(decoded(packed, "<f4"), rows)
    assert "cost" not in packed.json()["usage"]
    plain = await post(client, encoding_format="float")
    assert np.array_equal(np.array(plain.json()["data"][1]["embedding"], np.float32), rows[1])


async def test_a_model_of_another_family_answers_floats_unless_asked(client):
    answer = await client.post("/v1/embeddings", json={"input": "a", "model": "tiny"})
    assert isinstance(answer.json()["data"][0]["embedding"], list)
    answer = await client.post(
        "/v1/embeddings", json={"input": "a", "model": "tiny", "encoding_format": "base64_int8"}
    )
    assert len(base64.b64decode(answer.json()["data"][0]["embedding"])) == 32
    assert "cost" in answer.json()["usage"]


async def test_its_limits_hold_in_its_dialect_only(client):
    answer = await post(client, ["a"] * 513)
    assert answer.status_code == 400
    assert "513" in answer.json()["error"]["message"]
    assert (await post(client, ["a"] * 513, encoding_format="base64")).status_code == 200
    assert (await post(client, ["a"] * 512)).status_code == 200


async def test_its_limit_of_tokens_is_named(client, monkeypatch):
    from hotbed.ivy.dialects import perplexity

    monkeypatch.setattr(perplexity, "MAX_REQUEST_TOKENS", 10)
    answer = await post(client, ["the cat is in the house", "the cat is in the house"])
    assert answer.status_code == 413
    assert "the limit is 10 a request (of this API)" in answer.json()["error"]["message"]
