"""Quality on labelled data that you have:

    python -m bench.quality --stsb sts-test.csv --cranfield FOLDER [--model MODEL]

STS benchmark (Cer et al. 2017), test part, tab-separated, unquoted: column 5 the human score,
columns 6 and 7 the texts. Published for all-MiniLM-L6-v2: Spearman 0.82032. Cranfield (Cleverdon
1967): cran.all.1400, cran.qry, cranqrel. fp32 reference runs of all-MiniLM-L6-v2: nDCG@10 0.3953,
MRR@10 0.5346; of BM25 0.3467 and 0.4892.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from bench.retrieval import cranfield, mrr_at_10, ndcg_at_10, ranking
from hotbed import Embedder
from hotbed.bench import rows
from hotbed.core.defaults import DEFAULT_MODEL


def sts_pairs(path: Path) -> tuple[list[str], list[str], list[float]]:
    """Left texts, right texts and human scores, 0 to 5."""
    fields = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return [f[5] for f in fields], [f[6] for f in fields], [float(f[4]) for f in fields]


def sts(embedder: Embedder, path: Path, prompt: str | None = None) -> float:
    """Spearman of cosine and human score."""
    left, right, scores = sts_pairs(path)
    a, b = (embedder.embed(t, truncate=True, prompt_name=prompt) for t in (left, right))
    return float(spearmanr((a * b).sum(1), scores).statistic)


def retrieval(
    embedder: Embedder,
    folder: Path,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> tuple[float, float]:
    """nDCG@10 and MRR@10 on Cranfield."""
    collection = cranfield(folder)
    queries = embedder.embed(collection.queries, truncate=True, prompt_name=query_prompt)
    # Two documents of the collection have no text at all: rows of zeros, never found.
    filled = [i for i, text in enumerate(collection.documents) if text]
    documents = np.zeros((len(collection.documents), queries.shape[1]), np.float32)
    documents[filled] = embedder.embed(
        [collection.documents[i] for i in filled], truncate=True, prompt_name=document_prompt
    )
    ranked = ranking(queries, documents)
    return ndcg_at_10(ranked, collection.relevant), mrr_at_10(ranked, collection.relevant)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--stsb", type=Path, help="sts-test.csv")
    parser.add_argument("--cranfield", type=Path, help="folder of the collection")
    parser.add_argument("--query-prompt", help="name of a prompt of the model; also for --stsb")
    parser.add_argument("--document-prompt")
    parser.add_argument("--out", type=Path, help="a file of result rows")
    asked = parser.parse_args()
    model = Path(asked.model).name.lower()
    measured: list[dict[str, Any]] = []
    with Embedder(asked.model) as embedder:
        if asked.stsb is not None:
            score = round(sts(embedder, asked.stsb, asked.query_prompt), 4)
            measured.append(rows.row("quality-stsb", "hotbed", model, spearman=score))
        if asked.cranfield is not None:
            ndcg, mrr = retrieval(
                embedder, asked.cranfield, asked.query_prompt, asked.document_prompt
            )
            figures = {"ndcg_at_10": round(ndcg, 4), "mrr_at_10": round(mrr, 4)}
            measured.append(rows.row("quality-cranfield", "hotbed", model, **figures))
    rows.show("Quality", measured, ["suite", "model", "spearman", "ndcg_at_10", "mrr_at_10"])
    if asked.out:
        rows.append(asked.out, measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
