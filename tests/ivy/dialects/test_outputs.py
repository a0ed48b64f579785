"""Token vectors, multi-vector and sparse outputs, in every dialect that has a form for them."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import numpy as np
import pytest
import pytest_asyncio

from hotbed.checkpoint.records import MultiVectorHead
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.rows import RowSet
from hotbed.ivy import outputs
from hotbed.text.prompts import resolve_prompt
from hotbed.tulip.testing import FakeEngine, expected_sets
from tests.ivy.harness import (
    MODEL,
    PROMPTS,
    info_for,
    model_for,
    real_tulip,
    serving,
    settings_for,
    unix_address,
)

pytestmark = pytest.mark.asyncio(loop_scope="package")
TEXTS = ["the cat", "a fast dog. a dog, a house", "x"]
COLBERT = "colbert"
DENSE = "dense-only"
SPLADE = "splade"


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def client(tokenizer, tmp_path_factory) -> AsyncIterator[httpx.AsyncClient]:
    """Models with all outputs, with late interaction alone, with dense rows alone, with sparse."""
    folder = tmp_path_factory.mktemp("outputs")
    model = model_for(tokenizer)
    names = (MODEL, COLBERT, DENSE, SPLADE)
    addresses = {name: unix_address(folder, name[-4:]) for name in names}
    of = {
        MODEL: info_for(tokenizer).outputs,
        COLBERT: (("multi_vector", 16), ("tokens", 32)),
        DENSE: (),
        SPLADE: (("sparse", 30_000), ("tokens", 32)),
    }
    dot = tokenizer.encode(["."]).batch.token_ids[1]
    head = MultiVectorHead(
        dense=(), normalize=True, skipped_tokens=(int(dot),), query_length=12, document_length=20,
        expansion=(7, 9),
    )  # fmt: skip

    def served(name):
        expected = replace(model.expected, name=name)
        head_of = head if name == COLBERT else None
        return replace(
            model,
            names=(name,),
            expected=expected,
            replicas=(addresses[name],),
            multi_vector=head_of,
        )

    def tulip(name):
        engine = FakeEngine(replace(info_for(tokenizer, name=name), outputs=of[name]))
        return real_tulip(engine, addresses[name])

    async with (
        tulip(MODEL), tulip(COLBERT), tulip(DENSE), tulip(SPLADE),
        serving(settings_for(addresses[MODEL]), *(served(name) for name in names)) as ivy,
        ivy.client() as client,
    ):  # fmt: skip
        yield client


async def post(client, path, **fields):
    answer = await client.post(path, json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def expected(tokenizer, texts, spec: OutputSpec) -> RowSet:
    batch: RaggedBatch = tokenizer.encode(texts).batch
    return expected_sets(batch, spec, info=info_for(tokenizer))


def assert_vectors(got, rows: RowSet) -> None:
    for one, part in zip(got, rows.split(), strict=True):
        assert np.array_equal(np.array(one, np.float32).reshape(len(one), -1), part)


@pytest.mark.parametrize("path", ["/embed_all", "/v1/embed_all/"])
async def test_tei_embed_all_has_a_row_a_token_not_normalised(client, tokenizer, path):
    rows = expected(tokenizer, TEXTS, OutputSpec(kind="tokens"))
    assert_vectors(await post(client, path, inputs=TEXTS), rows)
    assert_vectors(await post(client, path, inputs=TEXTS[0]), rows.slice(0, 1))
    ids = tokenizer.encode(TEXTS).batch
    arrays = [ids.sequence(i).tolist() for i in range(3)]
    assert_vectors(await post(client, path, inputs=arrays), rows)
    long = "the cat is a dog " * 30
    (cut,) = await post(client, path, inputs=long, truncate=True)
    assert len(cut) == tokenizer.max_tokens


async def test_tei_embed_sparse_has_objects_of_index_and_value(client, tokenizer):
    rows = expected(tokenizer, TEXTS, OutputSpec(kind="sparse"))
    for model in (MODEL, SPLADE):
        answer = await post(client, "/embed_sparse", inputs=TEXTS, model=model)
        for got, part in zip(answer, rows.split(), strict=True):
            assert [set(entry) for entry in got] == [{"index", "value"}] * len(part)
            assert [entry["index"] for entry in got] == part["token"][:, 0].tolist()
            values = np.array([entry["value"] for entry in got], np.float32)
            assert np.array_equal(values, part["weight"][:, 0])


async def test_vllm_token_embed_takes_the_models_head_else_its_normalised_states(client, tokenizer):
    answer = await post(client, "/pooling", input=TEXTS, task="token_embed", model=MODEL)
    rows = expected(tokenizer, TEXTS, OutputSpec(kind="multi_vector"))
    assert_vectors([one["data"] for one in answer["data"]], rows)
    assert answer["usage"]["prompt_tokens"] == len(rows.rows)
    answer = await post(client, "/pooling", input=TEXTS, task="token_embed", model=SPLADE)
    unit = expected(tokenizer, TEXTS, OutputSpec(kind="tokens", normalize=True))
    assert_vectors([one["data"] for one in answer["data"]], unit)
    answer = await post(
        client, "/pooling", input=TEXTS, task="token_embed", model=SPLADE, dimensions=8,
        use_activation=False, encoding_format="base64",
    )  # fmt: skip
    raw = expected(tokenizer, TEXTS, OutputSpec(8, kind="tokens"))
    for one, part in zip(answer["data"], raw.split(), strict=True):
        got = np.frombuffer(base64.b64decode(one["data"]), "<f4").reshape(-1, 8)
        assert np.array_equal(got, part)


async def test_vllm_pooling_without_a_task_gives_what_the_model_has(client, tokenizer):
    dense = await post(client, "/pooling", input=TEXTS, model=MODEL)
    assert len(dense["data"][0]["data"]) == 32
    late = await post(client, "/pooling", input=["the cat"], model=COLBERT)
    rows = expected(tokenizer, ["the cat"], OutputSpec(kind="multi_vector"))
    assert_vectors([late["data"][0]["data"]], rows)


async def test_late_interaction_reads_queries_and_documents_its_own_way(client, tokenizer):
    """Prompts, queries filled up to nine tokens, the full stop without a vector in documents."""

    async def vectors(text, input_type):
        fields = {"input": [text], "model": COLBERT, "input_type": input_type}
        answer = await post(client, "/v1/multi-vector", **fields)
        assert (answer["object"], answer["model"]) == ("list", COLBERT)
        (one,) = answer["data"]
        assert (one["object"], one["index"]) == ("embeddings", 0)
        pooled = await post(client, "/pooling", task="token_embed", **fields)
        assert pooled["data"][0]["data"] == one["embeddings"]
        return np.array(one["embeddings"], np.float32)

    def rows_of(ids):
        batch = RaggedBatch.from_sequences([ids])
        spec = OutputSpec(kind="multi_vector")
        return expected_sets(batch, spec, info=info_for(tokenizer)).rows

    ids = tokenizer.encode(["query: the cat."]).batch.token_ids.tolist()
    assert np.array_equal(await vectors("the cat.", "query"), rows_of(ids + [7] * (9 - len(ids))))
    dot = tokenizer.encode(["."]).batch.token_ids[1]
    for input_type in ("document", None):
        prompt = resolve_prompt(PROMPTS, prompt_name=None, input_type=input_type)
        ids = tokenizer.encode([prompt + "the cat. a"]).batch.token_ids
        kept = rows_of(ids.tolist())[ids != dot]
        assert len(kept) == len(ids) - 1
        assert np.array_equal(await vectors("the cat. a", input_type), kept)
    too_long = {"input": "a " * 15, "model": COLBERT, "input_type": "query"}
    answer = await client.post("/v1/multi-vector", json=too_long)
    assert answer.status_code == 400
    assert "12" in answer.text
    cut = await post(client, "/v1/multi-vector", truncate=True, **too_long)
    assert len(cut["data"][0]["embeddings"]) == 12


async def test_several_outputs_of_one_request(client, tokenizer):
    kinds = ["dense", "sparse", "multi_vector", "tokens"]
    answer = await post(client, "/v1/outputs", input=TEXTS, outputs=kinds, model=MODEL)
    assert [set(one) for one in answer["data"]] == [{"index", *kinds}] * 3
    assert [one["index"] for one in answer["data"]] == [0, 1, 2]
    for kind in ("tokens", "multi_vector"):
        rows = expected(tokenizer, TEXTS, OutputSpec(kind=kind))
        assert_vectors([one[kind] for one in answer["data"]], rows)
    dense = expected(tokenizer, TEXTS, OutputSpec()).rows
    assert np.array_equal(np.array([one["dense"] for one in answer["data"]], np.float32), dense)
    sparse = expected(tokenizer, TEXTS, OutputSpec(kind="sparse"))
    for one, part in zip(answer["data"], sparse.split(), strict=True):
        assert one["sparse"]["indices"] == part["token"][:, 0].tolist()
        assert np.array_equal(np.array(one["sparse"]["values"], np.float32), part["weight"][:, 0])


async def test_large_requests_are_cut_and_come_back_in_order(client, tokenizer, monkeypatch):
    monkeypatch.setattr("hotbed.ivy.spread.MAX_ANSWER_BYTES", 64 * 1024)
    texts = [f"the cat {i} a dog {i * 7} x" * (1 + i % 3) for i in range(120)]
    answer = await client.post(
        "/v1/outputs", json={"input": texts, "outputs": ["tokens", "sparse"], "model": MODEL}
    )
    rows = expected(tokenizer, texts, OutputSpec(kind="tokens"))
    assert_vectors([one["tokens"] for one in answer.json()["data"]], rows)


async def test_a_model_says_which_outputs_it_has(client, tokenizer):
    listed = (await client.get("/v1/models")).json()["data"]
    of = {one["id"]: one["outputs"] for one in listed}
    assert of[MODEL] == {"dense": 32, "tokens": 32, "multi_vector": 16, "sparse": 30_000}
    assert of[COLBERT] == {"multi_vector": 16, "tokens": 32}
    assert of[DENSE] == {"dense": 32}
    dimensions = {one["id"]: one["dimensions"] for one in listed}
    assert (dimensions[MODEL], dimensions[COLBERT], dimensions[SPLADE]) == (32, None, None)
    info = (await client.get("/info")).json()
    assert info["model_type"]["embedding"]["outputs"] == list(of[MODEL])


@pytest.mark.parametrize(
    ("path", "fields", "message"),
    [
        ("/embed_sparse", {"inputs": "a", "model": DENSE}, "its outputs are: dense"),
        ("/embed_all", {"inputs": "a", "model": DENSE}, "its outputs are: dense"),
        ("/embed", {"inputs": "a", "model": SPLADE}, "its outputs are: sparse, tokens"),
        ("/v1/embeddings", {"input": "a", "model": COLBERT}, "are: multi_vector, tokens"),
        (
            "/pooling",
            {"input": "a", "task": "token_embed", "model": DENSE},
            "its outputs are: dense",
        ),
        ("/pooling", {"input": "a", "task": "embed", "model": SPLADE}, "outputs are: sparse"),
        ("/pooling", {"input": "a", "task": "token_classify", "model": MODEL}, "task"),
        ("/v1/multi-vector", {"input": "a", "model": SPLADE}, "outputs are: sparse, tokens"),
        ("/v1/multi-vector", {"input": "a", "dimensions": 17}, "1 to 16"),
        ("/v1/multi-vector", {"input": "a", "dimensions": 0}, "at least 1"),
        ("/v1/multi-vector", {"input": [[5]], "input_type": "query"}, "token ids"),
        ("/v1/outputs", {"input": "a", "outputs": []}, "one or more"),
        ("/v1/outputs", {"input": "a", "outputs": ["dense", "dense"]}, "each once"),
        ("/v1/outputs", {"input": "a", "outputs": ["rows"]}, "outputs"),
        ("/v1/outputs", {"input": "a", "outputs": ["sparse"], "model": DENSE}, "are: dense"),
        ("/embed_all", {"inputs": ["a", " "]}, "inputs[1]"),
        ("/embed_sparse", {"inputs": [[5]], "prompt_name": "query"}, "prompt_name"),
    ],
)
async def test_what_cannot_be_given_is_a_clear_400(client, path, fields, message):
    answer = await client.post(path, json={"model": MODEL, **fields})
    assert answer.status_code == 400, answer.text
    assert message in answer.text


async def test_more_vectors_than_an_answer_holds_are_a_413(client, monkeypatch):
    monkeypatch.setattr(outputs, "MAX_VECTOR_BYTES", 1000)
    answer = await client.post("/embed_all", json={"inputs": TEXTS, "model": MODEL})
    assert answer.status_code == 413
    assert "the limit is 1000" in answer.text
