"""A reranker through the whole building over HTTP, against sentence-transformers' CrossEncoder.

No package carries the weights of a real reranker, so the model is a seeded random one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from sentence_transformers import CrossEncoder

from tests.end_to_end.service import Service, running
from tests.support.scorers import make_bert_scorer

pytestmark = pytest.mark.slow

MAX_RELATIVE_ERROR = 1e-4
QUERY = "the fast cat"
DOCUMENTS = [f"{w} document {'is ' * (i % 50)}long" for i, w in enumerate(["a", "the", "of"] * 40)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert_scorer(tmp_path_factory.mktemp("model") / "reranker")


@pytest.fixture(scope="module")
def service(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("serve") / "log", str(folder)) as service:
        yield service


def test_scores_over_http_are_the_cross_encoders(service: Service, folder: Path) -> None:
    expected = CrossEncoder(str(folder)).predict([(QUERY, document) for document in DOCUMENTS])
    body = {"model": "reranker", "query": QUERY, "documents": DOCUMENTS}
    answer = httpx.post(f"{service.base_url}/v1/rerank", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert sorted(r["index"] for r in results) == list(range(len(DOCUMENTS)))
    scores = [r["relevance_score"] for r in results]
    assert scores == sorted(scores, reverse=True)
    found = np.empty(len(DOCUMENTS))
    found[[r["index"] for r in results]] = scores
    assert np.abs(found / expected - 1).max() <= MAX_RELATIVE_ERROR
    # Not one score for all.
    assert np.ptp(expected) > 0.01


def test_the_page_says_what_it_serves(service: Service) -> None:
    models = httpx.get(f"{service.base_url}/v1/models", timeout=60).json()
    assert {m["id"] for m in models["data"]} >= {"reranker"}
    wrong = httpx.post(f"{service.base_url}/v1/embeddings", json={"input": "a"}, timeout=60)
    assert wrong.status_code == 400
