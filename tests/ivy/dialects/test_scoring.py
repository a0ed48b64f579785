"""The dialects of /rerank, /score, /classify and /predict, and their own clients."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
import pytest_asyncio

from hotbed.ivy.dialects.rerank import RerankAnswer, TeiRank
from hotbed.ivy.dialects.score import ScoreAnswer
from hotbed.ivy.dialects.tei import TeiError
from hotbed.text.pairs import PairOptions
from hotbed.tulip.testing import FakeEngine, expected_rows
from tests.ivy.dialects.test_sdks import load
from tests.ivy.harness import (
    MODEL,
    real_tulip,
    score_info,
    score_model,
    serving,
    settings_for,
    unix_address,
)

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore"),  # of the clients' own code
    pytest.mark.usefixtures("others_left_nothing"),
]
QUERY = "the fast cat"
DOCUMENTS = ["a dog", "the cat is fast", "a house", "the fast cat in the house"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(pairs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scoring")
    addresses = unix_address(folder, "a"), unix_address(folder, "b")
    model = score_model(pairs)
    labels = replace(
        model,
        names=("labels",),
        expected=replace(model.expected, name="labels"),
        replicas=(addresses[1],),
    )
    async with (
        real_tulip(FakeEngine(score_info(pairs)), addresses[0]),
        real_tulip(FakeEngine(replace(score_info(pairs, 3), name="labels")), addresses[1]),
        serving(settings_for(addresses[0], max_inputs=50), model, labels) as ivy,
    ):
        yield ivy.url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(url):
    async with httpx.AsyncClient(base_url=url, timeout=30, trust_env=False) as client:
        yield client


def scores_of(pairs, queries, documents, labels: int = 1, **options) -> np.ndarray:
    batch = pairs.encode(queries, documents, PairOptions(**options)).batch
    return expected_rows(batch, info=score_info(pairs, labels))


def ranking(scores: np.ndarray) -> list[int]:
    return np.argsort(-scores[:, 0], kind="stable").tolist()


async def post(client, path: str, body: dict[str, Any]) -> Any:
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_one_answer_has_what_cohere_jina_and_vllm_clients_read(client, pairs):
    body = {"query": QUERY, "documents": DOCUMENTS, "model": "tiny", "return_documents": False}
    answer = await client.post("/v2/rerank", json=body)
    msgspec.json.decode(answer.content, type=RerankAnswer)
    found = answer.json()
    expected = scores_of(pairs, QUERY, DOCUMENTS)
    assert [r["index"] for r in found["results"]] == ranking(expected)
    assert all("document" not in r for r in found["results"])
    assert found["usage"]["total_tokens"] == found["meta"]["tokens"]["input_tokens"]
    assert found["meta"]["billed_units"] == {"search_units": 1}
    assert (found["model"], found["object"]) == (MODEL, "list")


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/rerank/"])
async def test_texts_get_teis_answer(client, pairs, path):
    body = {"query": QUERY, "texts": DOCUMENTS, "raw_scores": False, "return_text": True}
    answer = await client.post(path, json=body)
    ranks = msgspec.json.decode(answer.content, type=list[TeiRank])
    expected = scores_of(pairs, QUERY, DOCUMENTS)
    assert [r.index for r in ranks] == ranking(expected)
    assert [np.float32(r.score) for r in ranks] == [expected[r.index, 0] for r in ranks]
    assert [r.text for r in ranks] == [DOCUMENTS[r.index] for r in ranks]
    without = await post(client, path, {"query": QUERY, "texts": DOCUMENTS})
    assert all("text" not in r for r in without)


@pytest.mark.parametrize("name", ["top_n", "top_k"])
async def test_the_best_few_by_either_name(client, pairs, name):
    body = {"query": QUERY, "documents": DOCUMENTS, name: 2}
    found = await post(client, "/rerank", body)
    assert [r["index"] for r in found["results"]] == ranking(scores_of(pairs, QUERY, DOCUMENTS))[:2]


LONG = "the dog in the house " * 60


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"max_tokens_per_doc": 7}, {"max_document_tokens": 7}),
        ({"truncate": True}, {}),
        ({"truncate": True, "truncation_side": "left"}, {"truncation_side": "left"}),
        ({"truncate": True, "truncation_direction": "Left"}, {"truncation_side": "left"}),
        ({"truncate_prompt_tokens": -1}, {}),
        ({"truncate_prompt_tokens": 20}, {"max_tokens": 20}),
    ],
)
async def test_documents_are_cut_when_asked_for_in_any_dialect(
    client,
    pairs,
    fields,
    options,
):
    body = {"query": QUERY, "documents": [LONG, "a dog"], **fields}
    found = await post(client, "/rerank", body)
    expected = scores_of(pairs, QUERY, [LONG, "a dog"], **options)
    by_index = {r["index"]: np.float32(r["relevance_score"]) for r in found["results"]}
    assert [by_index[0], by_index[1]] == expected[:, 0].tolist()


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/rerank", {"query": QUERY, "documents": ["a", LONG]}, "documents[1]"),
        ("/rerank", {"query": QUERY, "texts": [LONG]}, "texts[0]"),
        ("/score", {"text_1": QUERY, "text_2": ["a", LONG]}, "text_2[1]"),
        ("/classify", {"input": ["a", LONG], "model": "labels"}, "input[1]"),
    ],
)
async def test_too_long_is_refused_with_both_numbers_unless_asked_for(client, path, body, param):
    answer = await client.post(path, json=body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param
    assert "300" in error["message"] or "30" in error["message"]
    assert "limit is" in error["message"]


async def test_auto_truncate_cuts_where_a_request_does_not_say(pairs, tmp_path):
    address = unix_address(tmp_path)
    async with (
        real_tulip(FakeEngine(score_info(pairs)), address),
        serving(settings_for(address, auto_truncate=True), score_model(pairs)) as ivy,
        ivy.client() as client,
    ):
        body = {"query": QUERY, "documents": [LONG]}
        assert (await client.post("/rerank", json=body)).status_code == 200
        refused = await client.post("/rerank", json={**body, "truncate": False})
        assert refused.status_code == 400


@pytest.mark.parametrize(
    ("first", "second"),
    [("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2")],
)
async def test_score_by_all_names_of_its_sides(client, pairs, first, second):
    answer = await client.post("/score", json={first: QUERY, second: DOCUMENTS})
    found = msgspec.json.decode(answer.content, type=ScoreAnswer)
    expected = scores_of(pairs, QUERY, DOCUMENTS)[:, 0].tolist()
    assert [np.float32(d.score) for d in found.data] == expected


async def test_raw_scores_by_either_name(client):
    body = {"text_1": QUERY, "text_2": DOCUMENTS}
    raw = await post(client, "/score", {**body, "raw_scores": True})
    assert raw["data"] == (await post(client, "/score", {**body, "use_activation": False}))["data"]
    same = await post(client, "/score", {**body, "use_activation": True})
    assert same["data"] == (await post(client, "/score", body))["data"]


async def test_predict_takes_a_text_a_pair_and_lists_of_either(client, pairs):
    def named(scores: np.ndarray) -> list[dict[str, Any]]:
        order = np.argsort(-scores, kind="stable").tolist()
        return [{"score": np.float32(scores[i]), "label": f"LABEL_{i}"} for i in order]

    def rounded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**row, "score": np.float32(row["score"])} for row in rows]

    singles = expected_rows(pairs.singles.encode(DOCUMENTS).batch, info=score_info(pairs, 3))
    one = await post(client, "/predict", {"inputs": DOCUMENTS[0], "model": "labels"})
    assert rounded(one) == named(singles[0])
    many = {"inputs": [[text] for text in DOCUMENTS], "model": "labels"}
    assert [rounded(r) for r in await post(client, "/predict", many)] == list(map(named, singles))
    couples = scores_of(pairs, [QUERY, "a"], ["b", "a dog"], 3)
    pair = await post(client, "/predict", {"inputs": [QUERY, "b"], "model": "labels"})
    assert rounded(pair) == named(couples[0])
    both = {"inputs": [[QUERY, "b"], ["a", "a dog"]], "model": "labels"}
    assert [rounded(r) for r in await post(client, "/predict", both)] == list(map(named, couples))


PAIR = {"query": QUERY, "documents": ["a"]}
BAD = [
    ("/rerank", {"query": QUERY}, 400, "documents"),
    ("/rerank", {"query": QUERY, "documents": ["a"], "texts": ["a"]}, 400, "documents"),
    ("/rerank", {"query": QUERY, "documents": "a"}, 400, "documents"),
    ("/rerank", {"query": QUERY, "documents": [{"image": "a"}]}, 400, "documents[0]"),
    ("/rerank", {"query": QUERY, "documents": ["a"] * 51}, 400, "documents"),
    ("/rerank", {"query": QUERY, "texts": []}, 400, "texts"),
    ("/rerank", {"query": QUERY, "texts": ["a", ""]}, 400, "texts[1]"),
    ("/rerank", {"query": ["a"], "documents": ["a"]}, 400, "query"),
    ("/rerank", {**PAIR, "top_n": 1, "top_k": 1}, 400, "top_k"),
    ("/rerank", {**PAIR, "top_k": -1}, 400, "top_n"),
    ("/rerank", {**PAIR, "top_n": "3"}, 400, "top_n"),
    ("/rerank", {**PAIR, "top_n": 1.5}, 400, "top_n"),
    ("/rerank", {**PAIR, "return_documents": 1}, 400, "return_documents"),
    ("/rerank", {**PAIR, "return_documents": True, "return_text": True}, 400, "return_text"),
    ("/rerank", {**PAIR, "max_tokens_per_doc": -1}, 400, "max_tokens_per_doc"),
    ("/rerank", {**PAIR, "truncate_prompt_tokens": 0}, 400, "truncate_prompt_tokens"),
    ("/rerank", {**PAIR, "truncate_prompt_tokens": 10**6}, 400, "truncate_prompt_tokens"),
    ("/rerank", {**PAIR, "truncate": True, "truncate_prompt_tokens": 9}, 400,
     "truncate_prompt_tokens"),
    ("/rerank", {**PAIR, "truncation_side": "Left"}, 400, "truncation_side"),
    ("/rerank", {**PAIR, "truncation_direction": "up"}, 400, "truncation_direction"),
    ("/rerank", {**PAIR, "raw_scores": True, "use_activation": True}, 400, "use_activation"),
    ("/rerank", {**PAIR, "rank_fields": ["a"]}, 400, "rank_fields"),
    ("/rerank", {**PAIR, "model": "rerank-v3.5"}, 404, "model"),
    ("/rerank", {**PAIR, "model": "labels"}, 400, "model"),
    ("/rerank", [], 400, None),
    ("/score", {}, 400, "text_1"),
    ("/score", {"text_1": QUERY}, 400, "text_1"),
    ("/score", {"text_1": QUERY, "documents": ["a"]}, 400, "text_1"),
    ("/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, 400, "text_1"),
    ("/score", {"text_1": [], "text_2": ["a"]}, 400, "text_1"),
    ("/score", {"text_1": "a", "text_2": []}, 400, "text_2"),
    ("/score", {"text_1": "", "text_2": ["a"]}, 400, "text_1"),
    ("/score", {"text_1": ["a", ""], "text_2": ["a", "b"]}, 400, "text_1[1]"),
    ("/score", {"text_1": "a", "text_2": ["a"] * 51}, 400, "text_2"),
    ("/score", {"text_1": "a", "text_2": 5}, 400, "text_2"),
    ("/score", {"queries": "a", "items": ["b"], "truncate": 1}, 400, "truncate"),
    ("/classify", {"input": [1, 2]}, 400, "input[0]"),
    ("/classify", {"input": "a", "truncate_prompt_tokens": 2}, 400, "truncate_prompt_tokens"),
    ("/classify", {"input": ["a"] * 51}, 400, "input"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "status", "param"), BAD)
async def test_a_wrong_request_is_told_what_is_wrong(client, path, body, status, param):
    answer = await client.post(path, json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == param


async def test_info_tells_tei_clients_what_the_model_does(client):
    model_type = (await client.get("/info")).json()["model_type"]
    assert model_type == {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}}


async def test_predict_with_the_hubs_parameters(client):
    body = {"inputs": "the cat", "model": "labels"}
    best = await post(client, "/predict", {**body, "parameters": {"top_k": 1}})
    everything = await post(client, "/predict", {**body, "parameters": {}})
    assert best == everything[:1]
    raw = await post(client, "/predict", {**body, "parameters": {"function_to_apply": "none"}})
    assert raw == await post(client, "/predict", {**body, "raw_scores": True})
    for wrong in ({"top_k": 0}, {"function_to_apply": "softmax"}, {"x": 1}):
        answer = await client.post("/predict", json={**body, "parameters": wrong})
        assert answer.status_code == 400


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ("", "inputs holds no text"),
        ([], "inputs"),
        (["a"], "one pair"),
        (["a", "b", "c"], "one pair"),
        ([["a"], "b"], "inputs[1]"),
        ([["a"], ["b", "c"]], "inputs[1]"),
        ([["a", "b", "c"]], "inputs[0]"),
        ([[]], "inputs[0]"),
        ([["a"], [" "]], "inputs[1] holds no text"),
        ([["a", " "]], "inputs[0][1] holds no text"),
        ([["a"]] * 51, "51"),
        (5, "inputs"),
        ({"text": "a"}, "inputs"),
    ],
)
async def test_wrong_inputs_of_predict(client, inputs, says):
    answer = await client.post("/predict", json={"inputs": inputs, "model": "labels"})
    assert answer.status_code == 400, answer.text
    assert says in msgspec.json.decode(answer.content, type=TeiError).error


# Real clients.


async def in_thread(function, *args, **kwargs):
    return await asyncio.to_thread(function, *args, **kwargs)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.mark.parametrize("version", [1, 2])
async def test_coheres_client(http, url, pairs, version):
    cohere = load("cohere")
    make = cohere.ClientV2 if version == 2 else cohere.Client
    client = make("none", base_url=url, httpx_client=http)
    more = {} if version == 2 else {"return_documents": True}
    answer = await in_thread(
        client.rerank, model="tiny", query=QUERY, documents=DOCUMENTS, top_n=3, **more
    )
    expected = scores_of(pairs, QUERY, DOCUMENTS)
    assert [r.index for r in answer.results] == ranking(expected)[:3]
    assert np.float32(answer.results[0].relevance_score) == expected.max()
    if version == 1:
        assert answer.results[0].document.text == DOCUMENTS[answer.results[0].index]
    assert answer.meta.billed_units.search_units == 1


async def test_langchains_cohere_rerank(url, pairs):
    module = load("langchain_cohere")
    compressor = module.CohereRerank(model="tiny", base_url=url, cohere_api_key="none", top_n=2)
    found = await in_thread(compressor.rerank, DOCUMENTS, QUERY)
    assert [r["index"] for r in found] == ranking(scores_of(pairs, QUERY, DOCUMENTS))[:2]


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("cohere/tiny", "/v1/rerank"),
        ("cohere/tiny", "/v2/rerank"),
        ("jina_ai/tiny", "/v1/rerank"),
        ("hosted_vllm/tiny", ""),
        ("huggingface/tiny", ""),  # TEI
    ],
)
async def test_litellms_rerank(litellm, url, pairs, model, path):
    answer = await in_thread(
        litellm.rerank, model=model, query=QUERY, documents=DOCUMENTS, top_n=4, api_base=url + path,
        api_key="none",
    )  # fmt: skip
    assert [r["index"] for r in answer.results] == ranking(scores_of(pairs, QUERY, DOCUMENTS))


async def test_llama_indexs_cohere_rerank(url, pairs):
    schema = load("llama_index.core.schema")
    module = load("llama_index.postprocessor.cohere_rerank")
    ranker = module.CohereRerank(model="tiny", api_key="none", base_url=url, top_n=3)
    found = await in_thread(ranker.postprocess_nodes, nodes_of(schema), query_str=QUERY)
    check_nodes(found, pairs, 3)


async def test_llama_indexs_jina_rerank(url, pairs):
    schema = load("llama_index.core.schema")
    module = load("llama_index.postprocessor.jinaai_rerank")
    ranker = module.JinaRerank(model="tiny", api_key="none", base_url=f"{url}/v1", top_n=3)
    found = await in_thread(ranker.postprocess_nodes, nodes_of(schema), query_str=QUERY)
    check_nodes(found, pairs, 3)


def nodes_of(schema) -> list[Any]:
    return [schema.NodeWithScore(node=schema.TextNode(text=text)) for text in DOCUMENTS]


def check_nodes(found, pairs, count: int) -> None:
    expected = scores_of(pairs, QUERY, DOCUMENTS)
    best = ranking(expected)[:count]
    assert [node.node.text for node in found] == [DOCUMENTS[i] for i in best]
    assert [np.float32(node.score) for node in found] == [expected[i, 0] for i in best]


async def test_hugging_face_hubs_text_classification(url, pairs, monkeypatch):
    hub = load("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    client = hub.InferenceClient(model=f"{url}/predict")
    found = await in_thread(client.text_classification, "the cat")
    expected = expected_rows(pairs.singles.encode(["the cat"]).batch, info=score_info(pairs))
    assert np.float32(found.score) == expected[0, 0]
