"""Real clients against a real server: the OpenAI SDK and LangChain, as people use them first."""

from __future__ import annotations

import asyncio
import base64
import functools
import sys
import types

import httpx
import numpy as np
import openai
import pytest
import pytest_asyncio
import tokenizers
from langchain_openai import OpenAIEmbeddings

from hotbed.tulip.testing import FakeEngine
from tests.ivy.conftest import MAX_TOKENS
from tests.ivy.harness import (
    MODEL,
    expected_for,
    info_for,
    model_for,
    real_tulip,
    serving,
    settings_for,
    unix_address,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXTS = ["The cat.", "a fast dog and a house"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def base_url(tokenizer, tmp_path_factory):
    address = unix_address(tmp_path_factory.mktemp("sdk"))
    async with (
        real_tulip(FakeEngine(info_for(tokenizer)), address),
        serving(settings_for(address), model_for(tokenizer)) as ivy,
    ):
        yield f"{ivy.url}/v1"


@pytest.fixture
def sdk(base_url):
    with openai.OpenAI(
        base_url=base_url,
        api_key="none",
        max_retries=0,
        http_client=httpx.Client(trust_env=False),
    ) as client:
        yield client


async def in_thread(function, *args, **kwargs):
    """A blocking client must not hold the loop that the server runs on."""
    return await asyncio.to_thread(function, *args, **kwargs)


def matrix(response) -> np.ndarray:
    return np.array([row.embedding for row in response.data], dtype=np.float32)


async def test_openai_sync_with_its_default_base64(sdk, tokenizer):
    response = await in_thread(sdk.embeddings.create, model=MODEL, input=TEXTS)
    rows, num_tokens = expected_for(tokenizer, TEXTS)
    assert np.array_equal(matrix(response), rows)
    assert response.usage.prompt_tokens == num_tokens
    assert response.model == MODEL
    assert [row.index for row in response.data] == [0, 1]


async def test_openai_async(base_url, tokenizer):
    async with openai.AsyncOpenAI(
        base_url=base_url, api_key="none", http_client=httpx.AsyncClient(trust_env=False)
    ) as client:
        response = await client.embeddings.create(model="tiny", input="The cat.")
        assert np.array_equal(matrix(response), expected_for(tokenizer, ["The cat."])[0])
        models = await client.models.list()
        assert MODEL in [model.id for model in models.data]
        assert (await client.models.retrieve(MODEL)).id == MODEL


@pytest.mark.parametrize("encoding_format", ["float", "base64"])
@pytest.mark.parametrize("dimensions", [8, 32])
async def test_openai_formats_and_dimensions(sdk, tokenizer, encoding_format, dimensions):
    response = await in_thread(
        sdk.embeddings.create,
        model=MODEL,
        input=TEXTS,
        dimensions=dimensions,
        encoding_format=encoding_format,
    )
    rows = [row.embedding for row in response.data]
    if encoding_format == "base64":
        rows = [np.frombuffer(base64.b64decode(row), "<f4") for row in rows]
    expected, _ = expected_for(tokenizer, TEXTS, dimensions)
    assert np.array_equal(np.array(rows, dtype=np.float32), expected)


async def test_openai_token_ids_and_own_fields(sdk, tokenizer):
    ids = tokenizer.encode(TEXTS).batch
    lists = [ids.sequence(i).tolist() for i in range(2)]
    response = await in_thread(sdk.embeddings.create, model=MODEL, input=lists)
    assert np.array_equal(matrix(response), expected_for(tokenizer, TEXTS)[0])
    response = await in_thread(
        sdk.embeddings.create, model=MODEL, input="the " * 500, extra_body={"truncate": True}
    )
    assert response.usage.prompt_tokens == MAX_TOKENS


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"input": ""}, openai.BadRequestError),
        ({"input": ["ok", ""]}, openai.BadRequestError),
        ({"input": "a", "dimensions": 4096}, openai.BadRequestError),
        ({"input": "a", "model": "text-embedding-3-small"}, openai.NotFoundError),
    ],
)
async def test_openai_errors_are_the_sdks_own(sdk, arguments, error):
    with pytest.raises(error) as caught:
        await in_thread(sdk.embeddings.create, **{"model": MODEL, **arguments})
    assert caught.value.body["message"]
    assert caught.value.request_id


@pytest_asyncio.fixture(loop_scope="module")
async def langchain(base_url):
    """Makes LangChain's embeddings class for the server."""
    async with httpx.AsyncClient(trust_env=False) as async_client:
        with httpx.Client(trust_env=False) as client:
            yield functools.partial(
                OpenAIEmbeddings,
                model=MODEL,
                base_url=base_url,
                api_key="none",
                max_retries=0,
                http_client=client,
                http_async_client=async_client,
            )


async def test_langchain_with_texts(langchain, tokenizer):
    embeddings = langchain(check_embedding_ctx_length=False)
    rows = await in_thread(embeddings.embed_documents, TEXTS)
    assert np.array_equal(np.array(rows, np.float32), expected_for(tokenizer, TEXTS)[0])
    row = await embeddings.aembed_query(TEXTS[0])
    assert np.array_equal(np.array(row, np.float32), expected_for(tokenizer, TEXTS)[0][0])


class _AutoTokenizer:
    """What LangChain needs of transformers (whose import takes seconds)."""

    def __init__(self, path: str) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(path)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str) -> _AutoTokenizer:
        return cls(pretrained_model_name_or_path)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids)


async def test_langchain_with_the_models_own_tokenizer(
    langchain, tokenizer, tokenizer_path, monkeypatch
):
    # Without tiktoken it cuts texts itself with AutoTokenizer and sends them as text again.
    transformers = types.ModuleType("transformers")
    transformers.AutoTokenizer = _AutoTokenizer
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    embeddings = langchain(tiktoken_enabled=False, tiktoken_model_name=str(tokenizer_path))
    rows = await in_thread(embeddings.embed_documents, ["the cat", "a fast dog"])
    expected, _ = expected_for(tokenizer, ["the cat", "a fast dog"])
    # LangChain divides by the norm once more, in double precision.
    assert np.allclose(rows, expected, atol=1e-6)


class _Cl100k:
    """What LangChain needs of tiktoken's encoding, with ids as large as cl100k's."""

    def encode(self, text: str, **_) -> list[int]:
        return [90_000 + len(word) for word in text.split()]

    encode_ordinary = encode

    def encode_ordinary_batch(self, texts: list[str], **_) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    encode_batch = encode_ordinary_batch


async def test_langchain_with_tiktoken_is_told_what_to_set(langchain, monkeypatch):
    # Case 71: it sends ids of OpenAI's vocabulary by default.
    import tiktoken

    monkeypatch.setattr(tiktoken, "encoding_for_model", lambda _: _Cl100k())
    monkeypatch.setattr(tiktoken, "get_encoding", lambda _: _Cl100k())
    with pytest.raises(openai.BadRequestError) as caught:
        await in_thread(langchain().embed_documents, TEXTS)
    assert "check_embedding_ctx_length=False" in str(caught.value)
