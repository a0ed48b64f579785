"""A retrieval collection on disk, and how well a ranking of it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Collection:
    """Texts and judgements.

    Attributes:
        documents: texts.
        queries: texts.
        relevant: for each query the indexes of the documents that were judged to suit it.
    """

    documents: list[str]
    queries: list[str]
    relevant: list[set[int]]


def cranfield(folder: Path) -> Collection:
    """The Cranfield collection (Cleverdon 1967): cran.all.1400, cran.qry and cranqrel of SMART.

    A document is its abstract (.W), or its title where that is empty. A judgement names a query by
    its place in the file, not by its .I. Grades 1 to 4 count alike; -1 means of no interest.
    """
    documents = [
        abstract or title
        for title, abstract in (_fields(r, "T", "W") for r in _records(folder / "cran.all.1400"))
    ]
    queries = [_fields(record, "W")[0] for record in _records(folder / "cran.qry")]
    relevant: list[set[int]] = [set() for _ in queries]
    for line in (folder / "cranqrel").read_text(encoding="latin-1").splitlines():
        query, document, grade = map(int, line.split()[:3])
        if grade > 0:
            relevant[query - 1].add(document - 1)
    return Collection(documents, queries, relevant)


def _records(path: Path) -> list[str]:
    return re.split(r"^\.I .*\n", path.read_text(encoding="latin-1"), flags=re.MULTILINE)[1:]


def _fields(record: str, *names: str) -> list[str]:
    parts = re.split(r"^\.([A-Z])\n", record, flags=re.MULTILINE)
    by_name = dict(zip(parts[1::2], parts[2::2], strict=True))
    return [" ".join(by_name.get(name, "").split()) for name in names]


def ranking(queries: NDArray[np.float32], documents: NDArray[np.float32]) -> NDArray[np.int64]:
    """Documents by falling dot product, ties by index: [queries, documents]."""
    return np.argsort(-(queries @ documents.T), axis=1, kind="stable")


def ndcg_at_10(ranked: NDArray[np.int64], relevant: list[set[int]]) -> float:
    """Mean over the queries of the discounted gain by that of the best ranking, gains 0 or 1."""
    discounts = 1 / np.log2(np.arange(2, 12))
    scores = []
    for row, wanted in zip(ranked, relevant, strict=True):
        gains = [document in wanted for document in row[:10].tolist()]
        best = discounts[: len(wanted)].sum()
        scores.append(float((discounts[: len(gains)] * gains).sum() / best))
    return float(np.mean(scores))


def mrr_at_10(ranked: NDArray[np.int64], relevant: list[set[int]]) -> float:
    """Mean over the queries of one by the place of the first relevant document, 0 after ten."""
    scores = []
    for row, wanted in zip(ranked, relevant, strict=True):
        places = [i for i, document in enumerate(row[:10].tolist(), 1) if document in wanted]
        scores.append(1 / places[0] if places else 0.0)
    return float(np.mean(scores))
