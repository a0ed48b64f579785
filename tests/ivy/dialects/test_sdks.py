"""The dialects' own Python clients and the frameworks over them, through real HTTP."""

from __future__ import annotations

import asyncio
import base64
import importlib
import sys
import types

import numpy as np
import pytest

from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.text.tokenizer import EncodeOptions
from tests.ivy.dialects.conftest import PPLX
from tests.ivy.harness import expected_for

pytestmark = [
    pytest.mark.asyncio(loop_scope="package"),
    # What the clients' own code is warned of is not ours.
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("others_left_nothing"),
]
TEXTS = ["the cat", "a fast dog"]
QUERY, PASSAGE = EncodeOptions(prefix="query: "), EncodeOptions(prefix="passage: ")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("DO_NOT_TRACK", "1")


@pytest.fixture
def url(client) -> str:
    return str(client.base_url).rstrip("/")


def load(name: str) -> types.ModuleType:
    """The package, imported where a warning of its own is no error."""
    if name not in sys.modules:
        pytest.importorskip(name)
    return importlib.import_module(name)


async def in_thread(function, *args, **kwargs):
    """A blocking client must not hold the loop that the server runs on."""
    return await asyncio.to_thread(function, *args, **kwargs)


def same(rows, expected) -> bool:
    return np.array_equal(np.array(rows, dtype=np.float32), expected)


async def test_cohere_version_2(http, url, tokenizer):
    cohere = load("cohere")
    client = cohere.ClientV2("none", base_url=url, httpx_client=http)
    answer = await in_thread(
        client.embed, model="tiny", texts=TEXTS, input_type="search_query",
        embedding_types=["float", "int8", "ubinary"],
    )  # fmt: skip
    assert same(answer.embeddings.float_, expected_for(tokenizer, TEXTS, options=QUERY)[0])
    spec = OutputSpec(dtype=OutputDtype.INT8)
    assert same(answer.embeddings.int8, expected_for(tokenizer, TEXTS, spec, QUERY)[0])
    assert answer.texts == TEXTS
    assert answer.meta.billed_units.input_tokens > 0


async def test_cohere_version_1(http, url, tokenizer):
    cohere = load("cohere")
    client = cohere.Client("none", base_url=url, httpx_client=http)
    answer = await in_thread(
        client.embed, model="tiny", texts=TEXTS, input_type="search_document", truncate="END"
    )
    expected, _ = expected_for(tokenizer, TEXTS, options=PASSAGE)
    assert same(answer.embeddings, expected)
    many = [f"cat {i}" for i in range(200)]  # the client cuts it into calls of 96 and joins them
    answer = await in_thread(client.embed, model="tiny", texts=many, input_type="clustering")
    assert same(answer.embeddings, expected_for(tokenizer, many)[0])


async def test_cohere_errors_are_its_own(http, url):
    cohere = load("cohere")
    client = cohere.ClientV2("none", base_url=url, httpx_client=http)
    with pytest.raises(cohere.BadRequestError) as caught:
        await in_thread(
            client.embed, model="tiny", texts=[""], input_type="search_query",
            embedding_types=["float"],
        )  # fmt: skip
    assert caught.value.body["param"] == "texts[0]"
    with pytest.raises(cohere.NotFoundError):
        await in_thread(
            client.embed, model="embed-v4.0", texts=["a"], input_type="search_query",
            embedding_types=["float"],
        )  # fmt: skip


async def test_perplexity(http, url, tokenizer):
    perplexity = load("perplexity")
    client = perplexity.Perplexity(api_key="none", base_url=url, max_retries=0, http_client=http)
    answer = await in_thread(client.embeddings.create, model=PPLX, input=TEXTS)
    rows = [np.frombuffer(base64.b64decode(row.embedding), np.int8) for row in answer.data]
    spec = OutputSpec(dtype=OutputDtype.INT8)
    assert same(rows, expected_for(tokenizer, TEXTS, spec)[0])
    assert answer.usage.cost.currency == "USD"
    answer = await in_thread(
        client.embeddings.create, model=PPLX, input="the cat", encoding_format="base64_binary"
    )
    assert len(base64.b64decode(answer.data[0].embedding)) == 4
    with pytest.raises(perplexity.BadRequestError):
        await in_thread(client.embeddings.create, model=PPLX, input=[""])


async def test_langchain_cohere(url, tokenizer):
    langchain_cohere = load("langchain_cohere")
    embeddings = langchain_cohere.CohereEmbeddings(
        model="tiny", base_url=url, cohere_api_key="none", max_retries=0
    )
    rows = await in_thread(embeddings.embed_documents, TEXTS)
    assert same(rows, expected_for(tokenizer, TEXTS, options=PASSAGE)[0])
    row = await in_thread(embeddings.embed_query, TEXTS[0])
    assert same([row], expected_for(tokenizer, TEXTS[:1], options=QUERY)[0])


async def test_langchain_perplexity(url, tokenizer, monkeypatch):
    monkeypatch.setenv("PERPLEXITY_BASE_URL", url)
    langchain_perplexity = load("langchain_perplexity")
    embeddings = langchain_perplexity.PerplexityEmbeddings(model=PPLX, pplx_api_key="none")
    rows = await in_thread(embeddings.embed_documents, TEXTS)
    spec = OutputSpec(dtype=OutputDtype.INT8)
    assert same(rows, expected_for(tokenizer, TEXTS, spec)[0])


async def test_llama_index(url, tokenizer):
    module = load("llama_index.embeddings.openai_like")
    embedding = module.OpenAILikeEmbedding(
        model_name="tiny", api_base=f"{url}/v1", api_key="none", max_retries=0
    )
    rows = await in_thread(embedding.get_text_embedding_batch, TEXTS)
    assert same(rows, expected_for(tokenizer, TEXTS)[0])


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("openai/tiny", "/v1"),
        ("hosted_vllm/tiny", ""),
        ("cohere/tiny", "/v2/embed"),
        ("jina_ai/tiny", "/v1/embeddings"),
        ("infinity/tiny", "/v1/embeddings"),
    ],
)
async def test_litellm(litellm, url, tokenizer, model, path):
    answer = await in_thread(
        litellm.embedding, model=model, input=TEXTS, api_base=url + path, api_key="none",
        num_retries=0, **({"input_type": "search_query"} if "cohere" in model else {}),
    )  # fmt: skip
    options = QUERY if "cohere" in model else EncodeOptions()
    expected, num_tokens = expected_for(tokenizer, TEXTS, options=options)
    assert same([row["embedding"] for row in answer.data], expected)
    assert answer.usage.prompt_tokens == num_tokens


async def test_litellm_perplexity(litellm, url, tokenizer):
    answer = await in_thread(
        litellm.embedding, model=f"perplexity/{PPLX}", input=TEXTS, api_base=url, api_key="none"
    )  # fmt: skip
    spec = OutputSpec(dtype=OutputDtype.INT8)
    rows = np.array([row["embedding"] for row in answer.data]) * 127
    assert np.array_equal(np.rint(rows), expected_for(tokenizer, TEXTS, spec)[0])


async def test_hugging_face_hub(url, tokenizer, monkeypatch):
    hub = load("huggingface_hub")
    # The tests are offline; this server is not the hub.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    expected, _ = expected_for(tokenizer, TEXTS)
    for address in (url, f"{url}/embed"):
        client = hub.InferenceClient(model=address)
        rows = await in_thread(client.feature_extraction, TEXTS, normalize=True, truncate=True)
        assert same(rows, expected)
    client = hub.InferenceClient(model=f"{url}/similarity")
    scores = await in_thread(client.sentence_similarity, TEXTS[0], other_sentences=TEXTS)
    assert np.allclose(scores, expected @ expected[0], atol=1e-6)
