"""Cohere's /v1/embed and /v2/embed."""

from __future__ import annotations

import base64

import msgspec
import numpy as np
import pytest

from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.ivy.dialects.cohere import CohereEmbedAnswer, CohereError
from hotbed.text.tokenizer import EncodeOptions
from tests.ivy.harness import expected_for

pytestmark = pytest.mark.asyncio(loop_scope="package")
TEXTS = ["the cat", "a fast dog"]


async def embed(client, version=2, **fields) -> dict:
    fields = {"texts": TEXTS, "model": "tiny", **fields}
    answer = await client.post(f"/v{version}/embed", json=fields)
    assert answer.status_code == 200, answer.text
    msgspec.json.decode(answer.content, type=CohereEmbedAnswer)
    return answer.json()


async def test_version_1_without_types_answers_bare_floats(client, tokenizer):
    answer = await embed(client, 1)
    expected, num_tokens = expected_for(tokenizer, TEXTS)
    assert answer["response_type"] == "embeddings_floats"
    assert np.array_equal(np.array(answer["embeddings"], np.float32), expected)
    assert answer["texts"] == TEXTS
    assert answer["meta"]["billed_units"] == {"input_tokens": num_tokens}
    assert answer["meta"]["api_version"] == {"version": "1"}


@pytest.mark.parametrize("version", [1, 2])
async def test_every_type_in_one_answer(client, tokenizer, version):
    kinds = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
    rows = (await embed(client, version, embedding_types=kinds))["embeddings"]
    assert list(rows) == kinds
    for kind in ("float", "int8", "binary", "ubinary"):
        dtype = OutputDtype("float32" if kind == "float" else kind)
        expected, _ = expected_for(tokenizer, TEXTS, OutputSpec(dtype=dtype))
        assert np.array_equal(np.array(rows[kind]).astype(expected.dtype), expected), kind
    assert np.array_equal(np.array(rows["uint8"]), np.array(rows["int8"]) + 128)
    first = np.frombuffer(base64.b64decode(rows["base64"][0]), "<f4")
    assert np.array_equal(first, np.array(rows["float"][0], np.float32))
    # Binary is ubinary less 128, as Cohere says.
    assert np.array_equal(np.array(rows["ubinary"]) - 128, np.array(rows["binary"]))


@pytest.mark.parametrize(
    ("input_type", "prefix"),
    [("search_query", "query: "), ("search_document", "passage: "), ("clustering", "")],
)
async def test_input_types_are_the_models_prompts(client, tokenizer, input_type, prefix):
    answer = await embed(client, input_type=input_type, output_dimension=8)
    expected, _ = expected_for(tokenizer, TEXTS, 8, EncodeOptions(prefix=prefix))
    assert np.array_equal(np.array(answer["embeddings"]["float"], np.float32), expected)


async def test_inputs_made_of_parts(client):
    parts = [{"content": [{"type": "text", "text": text}]} for text in TEXTS]
    answer = await embed(client, texts=None, inputs=parts)
    assert answer["embeddings"] == (await embed(client))["embeddings"]
    assert answer["texts"] == TEXTS


@pytest.mark.parametrize(("truncate", "side"), [("START", "left"), ("END", "right")])
async def test_truncation_at_either_end(client, tokenizer, truncate, side):
    text = "the cat is a fast dog " * 9
    answer = await embed(client, texts=[text], truncate=truncate, max_tokens=10)
    options = EncodeOptions(truncate=True, truncation_side=side, max_tokens=10)
    expected, num_tokens = expected_for(tokenizer, [text], options=options)
    assert num_tokens == 10
    assert np.array_equal(np.array(answer["embeddings"]["float"], np.float32), expected)


BAD = [
    ({"texts": None}, 400, "texts"),
    ({"texts": []}, 400, "texts"),
    ({"texts": "the cat"}, 400, "texts"),
    ({"texts": ["ok", ""]}, 400, "texts[1]"),
    ({"texts": [1]}, 400, "texts[0]"),
    ({"texts": ["the " * 100]}, 400, "texts[0]"),
    ({"texts": ["the " * 100], "truncate": "NONE"}, 400, "texts[0]"),
    ({"texts": ["a"] * 2049}, 400, "texts"),
    ({"inputs": [{"content": [{"type": "text", "text": "a"}]}]}, 400, "texts"),
    ({"texts": None, "inputs": [{"content": []}]}, 400, "inputs[0]"),
    ({"texts": None, "inputs": []}, 400, "inputs"),
    ({"texts": None, "inputs": [{"content": [{"type": "image"}]}]}, 400,
     "inputs[0].content[0].type"),
    ({"texts": None, "inputs": [{"content": [{"type": "text", "text": " "}]}]}, 400, "inputs[0]"),
    ({"truncate": "end"}, 400, "truncate"),
    ({"truncate": True}, 400, "truncate"),
    ({"input_type": "query"}, 400, "input_type"),
    ({"input_type": "image"}, 400, "input_type"),
    ({"embedding_types": ["float16"]}, 400, "embedding_types[0]"),
    ({"embedding_types": "float"}, 400, "embedding_types"),
    ({"output_dimension": 0}, 400, "output_dimension"),
    ({"output_dimension": 33}, 400, "output_dimension"),
    ({"output_dimension": 12, "embedding_types": ["binary"]}, 400, "output_dimension"),
    ({"max_tokens": 2}, 400, "max_tokens"),
    ({"max_tokens": 65}, 400, "max_tokens"),
    ({"images": ["data:"]}, 400, "images"),
    ({"model": "embed-v4.0"}, 404, "model"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "status", "param"), BAD)
async def test_a_wrong_request_is_told_what_is_wrong(client, fields, status, param):
    answer = await client.post("/v2/embed", json={"texts": ["a"], "model": "tiny", **fields})
    assert answer.status_code == status, answer.text
    error = msgspec.json.decode(answer.content, type=CohereError)
    assert error.param == param
    assert param.partition("[")[0] in error.message


async def test_too_long_is_refused_with_both_numbers(client):
    answer = await client.post("/v1/embed", json={"texts": ["the " * 100]})
    assert "texts[0] has 102 tokens, the limit is 64" in answer.json()["message"]
