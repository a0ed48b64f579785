"""Chunks read within their documents: Perplexity's route, and Jina's late_chunking."""

from __future__ import annotations

import base64
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.ivy.dialects.contextual import ContextualAnswer
from hotbed.text.chunked import encode_chunks
from hotbed.tulip.testing import FakeEngine, expected_rows
from tests.ivy.dialects.conftest import PPLX
from tests.ivy.dialects.test_sdks import load
from tests.ivy.harness import (
    in_process,
    info_for,
    model_for,
    real_tulip,
    settings_for,
    unix_address,
)

pytestmark = [
    pytest.mark.asyncio(loop_scope="package"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("others_left_nothing"),
]
DOCUMENTS = [["the cat", "is a fast dog"], ["this house"], ["a", "b", "c d"]]
PATH = "/v1/contextualizedembeddings"


def expected_for(tokenizer, documents, spec: OutputSpec | int = 0, prompt: str = ""):
    batch = encode_chunks(tokenizer, documents, prompt=prompt)
    return expected_rows(batch, spec, info=info_for(tokenizer)), batch.num_tokens


def rows_of(answer) -> np.ndarray:
    assert answer.status_code == 200, answer.text
    msgspec.json.decode(answer.content, type=ContextualAnswer)
    documents = answer.json()["data"]
    assert [d["index"] for d in documents] == list(range(len(documents)))
    for document in documents:
        assert [c["index"] for c in document["data"]] == list(range(len(document["data"])))
    return np.array([c["embedding"] for d in documents for c in d["data"]], np.float32)


@pytest.mark.parametrize("path", [PATH, "/contextualizedembeddings", PATH + "/"])
async def test_every_chunk_has_its_row_in_its_document(client, tokenizer, path):
    answer = await client.post(path, json={"input": DOCUMENTS, "model": "tiny"})
    expected, num_tokens = expected_for(tokenizer, DOCUMENTS)
    assert np.array_equal(rows_of(answer), expected)
    found = answer.json()
    assert [len(d["data"]) for d in found["data"]] == [2, 1, 3]
    assert found["usage"]["prompt_tokens"] == num_tokens
    assert found["usage"]["cost"]["currency"] == "USD"


async def test_options(client, tokenizer):
    body = {"input": DOCUMENTS, "dimensions": 8, "input_type": "document", "normalize": False}
    spec = OutputSpec(dimensions=8, normalize=False)
    expected, _ = expected_for(tokenizer, DOCUMENTS, spec, "passage: ")
    assert np.array_equal(rows_of(await client.post(PATH, json=body)), expected)


async def test_perplexitys_client(http, client, tokenizer):

    perplexity = load("perplexity")
    # Its own names of contextual models only; the route takes any that pools by mean.
    sdk = perplexity.Perplexity(
        api_key="none", base_url=str(client.base_url), max_retries=0,
        http_client=http,
    )  # fmt: skip
    import asyncio

    answer = await asyncio.to_thread(
        sdk.contextualized_embeddings.create, model="pplx-embed-context-v1-0.6b", input=DOCUMENTS
    )
    rows = [
        np.frombuffer(base64.b64decode(chunk.embedding), np.int8)
        for document in answer.data
        for chunk in document.data
    ]
    spec = OutputSpec(dtype=OutputDtype.INT8)
    assert np.array_equal(np.array(rows), expected_for(tokenizer, DOCUMENTS, spec)[0])


async def test_large_requests_are_split_by_rows_and_stay_in_order(client, tokenizer):
    documents = [[f"cat {d} {c}" for c in range(1 + d % 11)] for d in range(300)]
    answer = await client.post(PATH, json={"input": documents})
    assert np.array_equal(rows_of(answer), expected_for(tokenizer, documents)[0])


async def test_late_chunking_reads_the_texts_as_one_document(client, tokenizer):
    texts = ["the cat", "is a fast dog", "in this house"]
    body = {"input": texts, "late_chunking": True, "task": "retrieval.passage"}
    answer = await client.post("/v1/embeddings", json=body)
    assert answer.status_code == 200, answer.text
    rows = np.array([row["embedding"] for row in answer.json()["data"]], np.float32)
    expected, num_tokens = expected_for(tokenizer, [texts], prompt="passage: ")
    assert np.array_equal(rows, expected)
    assert answer.json()["usage"]["total_tokens"] == num_tokens
    alone = await client.post("/v1/embeddings", json={"input": texts, "task": "retrieval.passage"})
    key = "x-hotbed-fingerprint"
    assert alone.headers[key] != answer.headers[key]


async def test_a_model_that_does_not_pool_by_mean_says_so(tokenizer, tmp_path):
    address = unix_address(tmp_path)
    engine = FakeEngine(replace(info_for(tokenizer), pooling="cls"))
    async with (
        real_tulip(engine, address),
        in_process(settings_for(address), model_for(tokenizer)) as (_, client),
    ):
        answer = await client.post(PATH, json={"input": DOCUMENTS})
        assert answer.status_code == 400
        assert "mean" in answer.json()["error"]["message"]


BAD = [
    ({"input": []}, "input", "empty"),
    ({"input": [[]]}, "input[0]", "at least 1 chunk"),
    ({"input": ["a"]}, "input[0]", "list"),
    ({"input": "a"}, "input", "list"),
    ({"input": [["a"], [1]]}, "input[1][0]", "int"),
    ({"input": [["a", ""]]}, "input[0][1]", "holds no text"),
    ({"input": [["a"], ["b", " "]]}, "input[1][1]", "holds no text"),
    ({"input": [["a"], ["the " * 40, "the " * 40]]}, "input[1]", "82 tokens"),
    ({"input": [["a"]] * 513}, "input", "513"),
    ({"input": [["a"] * 16_001]}, "input", "16001"),
    ({"dimensions": 0}, "dimensions", "at least 1"),
    ({"dimensions": 33}, "dimensions", "32"),
    ({"encoding_format": "hex"}, "encoding_format", "base64_int8"),
    ({"prompt_name": "nope"}, "prompt_name", "query"),
    ({"truncate": True}, "truncate", "known fields"),
]


@pytest.mark.parametrize(("fields", "param", "says"), BAD)
async def test_a_wrong_request_is_told_what_is_wrong(client, fields, param, says):
    answer = await client.post(PATH, json={"input": [["a"]], **fields})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param
    assert says in error["message"]


async def test_its_models_answer_int8(client, tokenizer):
    answer = await client.post(PATH, json={"input": [["the cat"]], "model": PPLX})
    assert isinstance(answer.json()["data"][0]["data"][0]["embedding"], str)
