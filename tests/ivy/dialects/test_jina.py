"""Jina's dialect on /v1/embeddings."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.text.tokenizer import EncodeOptions
from tests.ivy.dialects.conftest import PPLX
from tests.ivy.harness import expected_for

pytestmark = pytest.mark.asyncio(loop_scope="package")
TEXTS = ["the cat", "a fast dog"]


async def rows(client, value=TEXTS, **fields) -> list:
    answer = await client.post("/v1/embeddings", json={"input": value, "model": "tiny", **fields})
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["total_tokens"] > 0
    return [row["embedding"] for row in answer.json()["data"]]


@pytest.mark.parametrize(
    ("task", "prefix"),
    [
        ("retrieval.query", "query: "),
        ("retrieval.passage", "passage: "),
        ("text-matching", ""),
        ("classification", ""),
        ("separation", ""),
    ],
)
async def test_a_task_is_the_models_prompt_for_it(client, tokenizer, task, prefix):
    expected, _ = expected_for(tokenizer, TEXTS, options=EncodeOptions(prefix=prefix))
    assert np.array_equal(np.array(await rows(client, task=task), np.float32), expected)


async def test_texts_may_come_as_objects(client):
    objects = [{"text": text} for text in TEXTS]
    assert await rows(client, objects, late_chunking=False) == await rows(client)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("binary", OutputDtype.BINARY), ("ubinary", OutputDtype.UBINARY)]
)
async def test_packed_types(client, tokenizer, kind, dtype):
    expected, _ = expected_for(tokenizer, TEXTS, OutputSpec(dtype=dtype))
    for asked in (kind, [kind]):
        got = np.array(await rows(client, embedding_type=asked))
        assert np.array_equal(got, expected.astype(int))


async def test_uint8_is_int8_shifted(client):
    signed = np.array(await rows(client, embedding_type="int8"))
    assert np.array_equal(np.array(await rows(client, embedding_type="uint8")), signed + 128)
    assert signed.min() < 0


async def test_base64_and_normalized(client, tokenizer):
    got = await rows(client, embedding_type="base64", normalized=False)
    expected, _ = expected_for(tokenizer, TEXTS, OutputSpec(normalize=False))
    assert np.array_equal(np.frombuffer(base64.b64decode(got[0]), "<f4"), expected[0])


async def test_on_perplexitys_models_it_is_still_jina(client):
    got = await rows(client, model=PPLX, task="retrieval.query")
    assert isinstance(got[0], list)
