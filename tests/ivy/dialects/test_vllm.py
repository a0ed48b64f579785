"""vLLM's /pooling and its truncate_prompt_tokens."""

from __future__ import annotations

import base64

import msgspec
import numpy as np
import pytest

from hotbed.core.output import OutputSpec
from hotbed.ivy.dialects.vllm import PoolingAnswer
from hotbed.text.tokenizer import EncodeOptions
from tests.ivy.harness import MODEL, expected_for

pytestmark = pytest.mark.asyncio(loop_scope="package")
TEXTS = ["the cat", "a fast dog"]


async def pooling(client, **fields) -> dict:
    answer = await client.post("/pooling", json={"input": TEXTS, "model": "tiny", **fields})
    assert answer.status_code == 200, answer.text
    msgspec.json.decode(answer.content, type=PoolingAnswer)
    return answer.json()


async def test_rows_in_vllms_form(client, tokenizer):
    answer = await pooling(client)
    expected, num_tokens = expected_for(tokenizer, TEXTS)
    assert answer["model"] == MODEL
    assert [row["object"] for row in answer["data"]] == ["pooling"] * 2
    assert np.array_equal(np.array([r["data"] for r in answer["data"]], np.float32), expected)
    assert answer["usage"]["prompt_tokens"] == num_tokens


async def test_its_options(client, tokenizer):
    answer = await pooling(
        client, use_activation=False, dimensions=8, encoding_format="base64", task="embed"
    )
    expected, _ = expected_for(tokenizer, TEXTS, OutputSpec(dimensions=8, normalize=False))
    row = np.frombuffer(base64.b64decode(answer["data"][1]["data"]), "<f4")
    assert np.array_equal(row, expected[1])


@pytest.mark.parametrize(("asked", "kept"), [(-1, 64), (10, 10), (64, 64)])
@pytest.mark.parametrize("path", ["/pooling", "/v1/embeddings"])
async def test_truncate_prompt_tokens(client, tokenizer, path, asked, kept):
    text = "the cat is a fast dog " * 20
    fields = {"input": text, "truncate_prompt_tokens": asked, "truncation_side": "left"}
    answer = await client.post(path, json=fields)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["prompt_tokens"] == kept
    options = EncodeOptions(truncate=True, truncation_side="left", max_tokens=kept)
    expected, _ = expected_for(tokenizer, [text], options=options)
    row = answer.json()["data"][0]
    assert np.array_equal(np.array(row.get("data", row.get("embedding")), np.float32), expected[0])


@pytest.mark.parametrize("path", ["/pooling", "/v1/embeddings"])
async def test_without_special_tokens(client, tokenizer, path):
    answer = await client.post(path, json={"input": TEXTS, "add_special_tokens": False})
    expected, num_tokens = expected_for(
        tokenizer, TEXTS, options=EncodeOptions(add_special_tokens=False)
    )
    assert answer.json()["usage"]["prompt_tokens"] == num_tokens
    row = answer.json()["data"][0]
    assert np.array_equal(np.array(row.get("data", row.get("embedding")), np.float32), expected[0])


BAD = [
    ({"input": ""}, 400, "input"),
    ({"input": "the " * 100}, 400, "input"),
    ({"truncate_prompt_tokens": 0}, 400, "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": -2}, 400, "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": 2}, 400, "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": 65}, 400, "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": "5"}, 400, "truncate_prompt_tokens"),
    ({"task": "token_classify"}, 400, "task"),
    ({"input_type": "passage"}, 400, "input_type"),
    ({"encoding_format": "bytes"}, 400, "encoding_format"),
    ({"dimensions": 100}, 400, "dimensions"),
    ({"dimensions": -1}, 400, "dimensions"),
    ({"messages": []}, 400, "messages"),
    ({"model": "nope"}, 404, "model"),
]


@pytest.mark.parametrize(("fields", "status", "param"), BAD)
async def test_a_wrong_request_is_told_what_is_wrong(client, fields, status, param):
    answer = await client.post("/pooling", json={"input": "a", **fields})
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == param
    assert param in answer.json()["error"]["message"]


async def test_two_words_for_truncation_are_refused(client):
    body = {"input": "a", "truncate": True, "truncate_prompt_tokens": 5}
    assert (await client.post("/v1/embeddings", json=body)).status_code == 400
