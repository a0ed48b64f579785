"""Rankings scored by hand, and a collection of three documents."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from bench.retrieval import cranfield, mrr_at_10, ndcg_at_10, ranking


def test_documents_are_ranked_by_product_and_ties_by_place() -> None:
    queries = np.array([[1, 0], [0, 1]], np.float32)
    documents = np.array([[0.1, 0.5], [0.9, 0.5], [0.9, 0.7]], np.float32)
    assert ranking(queries, documents).tolist() == [[1, 2, 0], [2, 0, 1]]


def test_gains_are_discounted_by_place() -> None:
    ranked = np.array([[3, 1, 2, 0]])
    best = 1 + 1 / math.log2(3)
    assert ndcg_at_10(ranked, [{3, 1}]) == pytest.approx(1)
    assert ndcg_at_10(ranked, [{3, 2}]) == pytest.approx((1 + 1 / math.log2(4)) / best)
    assert ndcg_at_10(np.arange(20)[None], [{10, 11}]) == 0


def test_the_best_ranking_of_more_than_ten_relevant_documents_is_ten_of_them() -> None:
    assert ndcg_at_10(np.arange(20)[None], [set(range(15))]) == pytest.approx(1)


def test_reciprocal_rank_is_the_first_relevant_documents() -> None:
    ranked = np.array([[0, 1, 2, 3], [3, 2, 1, 0]])
    assert mrr_at_10(ranked, [{1, 3}, {3}]) == pytest.approx((1 / 2 + 1) / 2)
    assert mrr_at_10(np.arange(20)[None], [{10}]) == 0


def test_cranfields_files(tmp_path: Path) -> None:
    """Queries are judged by their place in the file; grade -1 is no interest."""
    (tmp_path / "cran.all.1400").write_text(
        ".I 1\n.T\na title .\n.A\nx\n.B\ny\n.W\nan abstract\nin two lines .\n"
        ".I 2\n.T\nonly a title .\n.A\n.B\n.W\n.I 3\n.T\n.A\n.B\n.W\n"
    )
    (tmp_path / "cran.qry").write_text(".I 007\n.W\nfirst\n.I 042\n.W\nsecond query .\n")
    (tmp_path / "cranqrel").write_text("1 2 1\n1 1 -1\n2 1 4\n2 3 3 \n")
    collection = cranfield(tmp_path)
    assert collection.documents == ["an abstract in two lines .", "only a title .", ""]
    assert collection.queries == ["first", "second query ."]
    assert collection.relevant == [{1}, {0, 2}]
