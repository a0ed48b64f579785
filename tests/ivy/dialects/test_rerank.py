"""POST /rerank and /score over a fake engine that scores."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from hotbed.core.errors import ErrorCode
from hotbed.ivy.served_model import ServedModel, load_served_models
from hotbed.ivy.settings import IvySettings
from hotbed.text.pairs import PairTokenizer
from hotbed.text.tokenizer import Tokenizer
from hotbed.tulip.testing import FakeEngine, expected_rows
from tests.ivy.asking import failing
from tests.ivy.harness import (
    MODEL,
    in_process,
    info_for,
    real_tulip,
    score_info,
    score_model,
    scripted,
    settings_for,
    unix_address,
    wait_until,
)
from tests.support.scorers import make_qwen3_reranker

QUERY = "the fast cat"
DOCUMENTS = [f"document {'is ' * (i % 7)}long" for i in range(30)]


@contextlib.asynccontextmanager
async def reranking(
    pairs: PairTokenizer, folder: Path, labels: int = 1, **changes: Any
) -> AsyncIterator[httpx.AsyncClient]:
    engine = FakeEngine(score_info(pairs, labels))
    address = unix_address(folder)
    settings = settings_for(address, **changes)
    async with (
        real_tulip(engine, address),
        in_process(settings, score_model(pairs)) as (_, client),
    ):
        yield client
    engine.close()


def expected_scores(pairs: PairTokenizer, queries: Any, documents: list[str]) -> Any:
    batch = pairs.encode(queries, documents).batch
    return expected_rows(batch, info=score_info(pairs))[:, 0], batch.num_tokens


async def test_documents_come_best_first_with_usage(pairs: PairTokenizer, tmp_path: Path) -> None:
    scores, num_tokens = expected_scores(pairs, QUERY, DOCUMENTS)
    async with reranking(pairs, tmp_path) as client:
        for path in ("/rerank", "/v1/rerank", "/v2/rerank", "/v1/rerank/"):
            body = {"model": "tiny", "query": QUERY, "documents": DOCUMENTS, "top_n": None}
            answer = await client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            found = answer.json()
            assert [r["index"] for r in found["results"]] == np.argsort(
                -scores, kind="stable"
            ).tolist()
            assert [np.float32(r["relevance_score"]) for r in found["results"]] == sorted(
                scores, reverse=True
            )
            # As Jina's and vLLM's servers do; Cohere's version 2 has no such field.
            with_text = [r["document"] == {"text": DOCUMENTS[r["index"]]} for r in found["results"]
                         if "document" in r]  # fmt: skip
            assert with_text == ([] if "v2" in path else [True] * len(DOCUMENTS))
            body["return_documents"] = False
            found = (await client.post(path, json=body)).json()
            assert all("document" not in r for r in found["results"])
            assert found["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
            assert found["model"] == MODEL
            assert answer.headers["x-hotbed-fingerprint"]


@pytest.mark.parametrize(("top_n", "count"), [(1, 1), (30, 30), (99, 30), (0, 30)])
async def test_top_n_cuts_the_sorted_list(
    pairs: PairTokenizer, tmp_path: Path, top_n: int, count: int
) -> None:
    """LocalAI 6700, ragflow 15278: ignored, or n of n came unsorted."""
    scores, _ = expected_scores(pairs, QUERY, DOCUMENTS)
    async with reranking(pairs, tmp_path) as client:
        body = {"query": QUERY, "documents": DOCUMENTS, "top_n": top_n}
        results = (await client.post("/rerank", json=body)).json()["results"]
    assert [r["index"] for r in results] == np.argsort(-scores, kind="stable").tolist()[:count]


async def test_equal_scores_stay_in_the_order_of_the_request(
    pairs: PairTokenizer, tmp_path: Path
) -> None:
    documents = ["a", "b", "a", "b", "a"]
    async with reranking(pairs, tmp_path) as client:
        body = {"query": QUERY, "documents": documents}
        results = (await client.post("/rerank", json=body)).json()["results"]
    order = [r["index"] for r in results]
    assert order in ([0, 2, 4, 1, 3], [1, 3, 0, 2, 4])


async def test_objects_with_a_text_are_documents_and_come_back_when_asked_for(
    pairs: PairTokenizer, tmp_path: Path
) -> None:
    documents = [{"text": text} for text in DOCUMENTS[:3]]
    async with reranking(pairs, tmp_path) as client:
        body = {"query": QUERY, "documents": documents, "return_documents": True}
        results = (await client.post("/rerank", json=body)).json()["results"]
    assert [r["document"] for r in results] == [documents[r["index"]] for r in results]


async def test_fields_of_objects_are_read_in_the_order_asked_for(
    pairs: PairTokenizer, tmp_path: Path
) -> None:
    """Cohere's version 1: structured documents."""
    documents = [
        {"title": "the cat", "text": "a fast dog", "year": 1999},
        {"text": "the house"},
        "a dog",
    ]
    read = ["a fast dog\nthe cat", "the house", "a dog"]
    scores, _ = expected_scores(pairs, QUERY, read)
    async with reranking(pairs, tmp_path) as client:
        body = {"query": QUERY, "documents": documents, "rank_fields": ["text", "title"]}
        results = (await client.post("/v1/rerank", json=body)).json()["results"]
    assert [r["index"] for r in results] == np.argsort(-scores, kind="stable").tolist()
    assert [r["document"]["text"] for r in results] == [read[r["index"]] for r in results]


async def test_the_instruction_is_in_the_fingerprint_whoever_gave_it(tmp_path: Path) -> None:
    folder = make_qwen3_reranker(tmp_path / "rank-reranker")
    settings = IvySettings(model=str(folder), fast_tokenizers="off", task="score")
    (served,) = load_served_models(settings)
    assert served.pairs is not None
    async with reranking(served.pairs, tmp_path) as client:

        async def fingerprint(**more: str) -> str:
            body = {"query": QUERY, "documents": ["a dog"], **more}
            answer = await client.post("/rerank", json=body)
            assert answer.status_code == 200, answer.text
            return answer.headers["x-hotbed-fingerprint"]

        own = await fingerprint()
        assert await fingerprint(instruction=served.pairs.default_instruction or "") == own
        assert await fingerprint(instruction="Find the paper") != own


async def test_the_request_id_ends_the_answers_id(pairs: PairTokenizer, tmp_path: Path) -> None:
    async with reranking(pairs, tmp_path) as client:
        body = {"query": QUERY, "documents": ["a"], "request_id": "mine"}
        assert (await client.post("/rerank", json=body)).json()["id"] == "rerank-mine"


@pytest.mark.parametrize(
    ("changes", "says", "param"),
    [
        ({"documents": [{"title": "a"}]}, "has no field text", "documents[0]"),
        ({"documents": [{"text": 3}]}, "must be a string", "documents[0].text"),
        (
            {"documents": [{"a": "x"}], "rank_fields": ["b", "c"]},
            "has no field b, c",
            "documents[0]",
        ),
        ({"documents": [{"a": "x"}], "rank_fields": []}, "at least 1", "rank_fields"),
        ({"rank_fields": ["a"]}, "these are texts", "rank_fields"),
        ({"max_tokens_per_query": 5}, "max_tokens_per_query must be", "max_tokens_per_query"),
        ({"max_tokens_per_doc": -1}, "at least 0", "max_tokens_per_doc"),
        ({"request_id": ""}, "1 to 256", "request_id"),
        ({"query": " "}, "query holds no text", "query"),
        ({"query": "a " * 200}, "query has 200 tokens", "query"),
        ({"query": None}, "query must be a string", "query"),
        ({"documents": []}, "documents is an empty list", "documents"),
        ({"documents": ["a", ""]}, "documents[1] holds no text", "documents[1]"),
        ({"documents": ["a"] * 31}, "documents has 31 items; the limit is 30", "documents"),
        ({"documents": ["a", 3]}, "documents", "documents[1]"),
        ({"top_n": -1}, "top_n must be at least 0", "top_n"),
        ({"top_m": 1}, "Unknown field 'top_m'", "top_m"),
        ({"model": "other"}, "'other' is not served", "model"),
        ({"truncate": False, "documents": ["a " * 200]}, "has 206 tokens", "documents[0]"),
        ({"instruction": "find"}, "takes no instruction", "instruction"),
    ],
)
async def test_what_is_wrong_is_named(
    pairs: PairTokenizer, tmp_path: Path, changes: dict[str, Any], says: str, param: str
) -> None:
    async with reranking(pairs, tmp_path, max_inputs=30) as client:
        answer = await client.post("/rerank", json={"query": QUERY, "documents": ["a"], **changes})
    assert answer.status_code == (404 if param == "model" else 400)
    error = answer.json()["error"]
    assert says in error["message"]
    assert error["param"] == param


async def test_a_replicas_error_names_the_document(pairs: PairTokenizer, tmp_path: Path) -> None:
    address = unix_address(tmp_path)
    async with scripted(score_info(pairs), address) as tulip:
        tulip.answer = failing(ErrorCode.INTERNAL, param="input[1]")
        async with in_process(settings_for(address), score_model(pairs)) as (_, client):
            answer = await client.post("/rerank", json={"query": QUERY, "documents": ["a", "b"]})
    assert answer.status_code == 500
    assert answer.json()["error"]["param"] == "documents[1]"


async def test_pairs_reach_the_replica_with_their_second_texts_start(
    pairs: PairTokenizer, tmp_path: Path
) -> None:
    address = unix_address(tmp_path)
    async with scripted(score_info(pairs), address) as tulip:
        async with in_process(settings_for(address), score_model(pairs)) as (_, client):
            answer = await client.post("/rerank", json={"query": QUERY, "documents": ["a", "b c"]})
        assert answer.status_code == 200, answer.text
        (item,) = tulip.items
    starts = np.frombuffer(item.batch.pair_starts, dtype="<i4")
    assert starts.tolist() == [5, 5]


@pytest.mark.parametrize(
    ("text_1", "text_2"),
    [
        (QUERY, DOCUMENTS[0]),
        (QUERY, DOCUMENTS[:5]),
        ([QUERY], DOCUMENTS[:5]),
        (DOCUMENTS[5:10], DOCUMENTS[:5]),
    ],
    ids=["1-1", "1-n", "[1]-n", "n-n"],
)
async def test_score_keeps_the_order_of_the_pairs(
    pairs: PairTokenizer, tmp_path: Path, text_1: Any, text_2: Any
) -> None:
    documents = [text_2] if isinstance(text_2, str) else text_2
    queries = text_1[0] if isinstance(text_1, list) and len(text_1) == 1 else text_1
    scores, num_tokens = expected_scores(pairs, queries, documents)
    async with reranking(pairs, tmp_path) as client:
        for path in ("/score", "/v1/score"):
            answer = await client.post(path, json={"text_1": text_1, "text_2": text_2})
            assert answer.status_code == 200, answer.text
            found = answer.json()
            assert [np.float32(d["score"]) for d in found["data"]] == scores.tolist()
            assert [d["index"] for d in found["data"]] == list(range(len(documents)))
            assert found["usage"]["total_tokens"] == num_tokens


async def test_several_labels_are_not_ranked(pairs: PairTokenizer, tmp_path: Path) -> None:
    """An n-label classifier treated as a reranker ranks by its first label."""
    async with reranking(pairs, tmp_path, labels=3) as client:
        answer = await client.post("/rerank", json={"query": "a", "documents": ["b"]})
    assert answer.status_code == 400
    assert "3 labels" in answer.json()["error"]["message"]


async def test_the_wrong_task_is_told_at_once(
    pairs: PairTokenizer, tmp_path: Path, tokenizer: Tokenizer, model: ServedModel
) -> None:
    """vLLM 7502: a request of the wrong kind stalled the server."""
    async with reranking(pairs, tmp_path) as client:
        answer = await client.post("/embeddings", json={"input": "a"})
        assert answer.status_code == 400
        assert "/v1/rerank" in answer.json()["error"]["message"]
    engine, address = FakeEngine(info_for(tokenizer)), unix_address(tmp_path, "e")
    async with (
        real_tulip(engine, address),
        in_process(settings_for(address), model) as (_, client),
    ):
        answer = await client.post("/rerank", json={"query": "a", "documents": ["b"]})
        assert answer.status_code == 400
        assert "embeds" in answer.json()["error"]["message"]
    engine.close()


async def test_a_replica_that_embeds_is_refused(pairs: PairTokenizer, tmp_path: Path) -> None:
    engine, address = FakeEngine(info_for(pairs._tokenizer)), unix_address(tmp_path)
    async with (
        real_tulip(engine, address),
        in_process(settings_for(address), score_model(pairs), num_up=0) as (ivy, _),
    ):
        await wait_until(lambda: ivy.pool.replicas[0].state == "refused")
        assert "its task is 'embed'" in ivy.pool.replicas[0].reason
    engine.close()


@pytest.mark.parametrize("value", [DOCUMENTS[0], DOCUMENTS[:5]], ids=["bare", "list"])
async def test_texts_are_classified_alone(
    pairs: PairTokenizer, tmp_path: Path, value: str | list[str]
) -> None:
    texts = [value] if isinstance(value, str) else value
    batch = pairs.singles.encode(texts).batch
    expected = expected_rows(batch, info=score_info(pairs, 3))
    async with reranking(pairs, tmp_path, labels=3) as client:
        for path in ("/classify", "/v1/classify"):
            answer = await client.post(path, json={"input": value})
            assert answer.status_code == 200, answer.text
            found = answer.json()
            assert np.array_equal(np.array([d["probs"] for d in found["data"]], "f4"), expected)
            assert [d["label"] for d in found["data"]] == [
                f"LABEL_{i}" for i in expected.argmax(axis=1)
            ]
            assert {d["num_classes"] for d in found["data"]} == {3}
            assert found["usage"]["total_tokens"] == batch.num_tokens


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": " "}, "input"),
        ({"input": []}, "input"),
        ({"input": "a " * 200}, "input"),
        ({"text": "a"}, "text"),
    ],
)
async def test_what_is_wrong_with_a_text_is_named(
    pairs: PairTokenizer, tmp_path: Path, body: dict[str, Any], param: str
) -> None:
    async with reranking(pairs, tmp_path, labels=3) as client:
        answer = await client.post("/classify", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


async def test_a_request_that_is_too_large_by_its_query_alone_is_refused_before_its_documents(
    pairs: PairTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 tokens of query for 1,000 documents are 100,000 tokens."""
    async with reranking(pairs, tmp_path, max_request_tokens=50_000) as client:
        monkeypatch.setattr(PairTokenizer, "encode", None)
        body = {"query": "the cat " * 50, "documents": ["a dog " * 50] * 1000}
        answer = await client.post("/rerank", json=body)
    assert answer.status_code == 413
    error = answer.json()["error"]
    assert error["param"] == "documents"
    assert "104000 tokens" in error["message"]
    assert "50000" in error["message"]


async def test_large_requests_are_tokenised_in_pieces_in_order(
    pairs: PairTokenizer, tmp_path: Path
) -> None:
    documents = [f"{'long ' * (i % 60)}text {i}" for i in range(1500)]
    scores, num_tokens = expected_scores(pairs, QUERY, documents)
    async with reranking(pairs, tmp_path) as client:
        answer = await client.post("/score", json={"text_1": QUERY, "text_2": documents})
        assert answer.status_code == 200, answer.text
        assert [np.float32(d["score"]) for d in answer.json()["data"]] == scores.tolist()
        assert answer.json()["usage"]["total_tokens"] == num_tokens
        documents[1400] = " "
        answer = await client.post("/score", json={"text_1": QUERY, "text_2": documents})
        assert answer.json()["error"]["param"] == "text_2[1400]"
