"""Quality of the default model on labelled data you have: `python -m bench.quality --stsb FILE`.

STS benchmark (Cer et al. 2017), test part, tab-separated, unquoted: column 5 the human score,
columns 6 and 7 the texts. Published for all-MiniLM-L6-v2: Spearman 0.82032.
Cranfield (1,400 abstracts, 225 queries): nDCG@10 with binary gain over all judged pairs.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from bench import rows
from hotbed import Embedder

MODEL = "all-minilm-l6-v2"


def sts(embedder: Embedder, path: Path) -> float:
    fields = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    left = embedder.embed([f[5] for f in fields], truncate=True)
    right = embedder.embed([f[6] for f in fields], truncate=True)
    return float(spearmanr((left * right).sum(1), [float(f[4]) for f in fields]).statistic)


def cranfield(embedder: Embedder, folder: Path) -> float:
    documents = [
        (d.split("\n.W", 1)[1].strip() or d.split("\n.T", 1)[1].split("\n.A")[0]).strip() or "empty"
        for d in re.split(r"(?m)^\.I \d+", (folder / "cran.all.1400").read_text())[1:]
    ]
    queries = [
        q.split("\n.W", 1)[1].strip()
        for q in re.split(r"(?m)^\.I \d+", (folder / "cran.qry").read_text())[1:]
    ]
    relevant: dict[int, set[int]] = {}
    for line in (folder / "cranqrel").read_text().splitlines():
        query, document, *_ = (int(part) for part in line.split())
        relevant.setdefault(query - 1, set()).add(document - 1)
    scores = embedder.embed(queries) @ embedder.embed(documents, truncate=True).T
    discounts = 1 / np.log2(np.arange(2, 12))
    gains = []
    for i, row in enumerate(scores):
        hits = [d in relevant[i] for d in np.argsort(-row, kind="stable")[:10]]
        gains.append((discounts * hits).sum() / discounts[: min(10, len(relevant[i]))].sum())
    return float(np.mean(gains))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stsb", type=Path, help="sts-test.csv")
    parser.add_argument(
        "--cranfield", type=Path, help="folder with cran.all.1400 and its companions"
    )
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    measured: list[dict[str, Any]] = []
    with Embedder() as embedder:
        if arguments.stsb:
            score = round(sts(embedder, arguments.stsb), 4)
            measured.append(rows.row("quality-stsb", "hotbed", MODEL, spearman=score))
        if arguments.cranfield:
            score = round(cranfield(embedder, arguments.cranfield), 4)
            measured.append(rows.row("quality-cranfield", "hotbed", MODEL, ndcg_10=score))
    rows.show("Quality", measured, ["suite", "system", "spearman", "ndcg_10"])
    if arguments.out:
        rows.append(arguments.out, measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
