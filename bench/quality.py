"""Quality of the default model on labelled data you have: `python -m bench.quality --stsb FILE`.

STS benchmark (Cer et al. 2017), test part, tab-separated, unquoted: column 5 the human score,
columns 6 and 7 the texts. Published for all-MiniLM-L6-v2: Spearman 0.82032.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from hotbed import Embedder
from hotbed.bench import rows

MODEL = "all-minilm-l6-v2"


def sts(embedder: Embedder, path: Path) -> float:
    fields = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    left = embedder.embed([f[5] for f in fields], truncate=True)
    right = embedder.embed([f[6] for f in fields], truncate=True)
    return float(spearmanr((left * right).sum(1), [float(f[4]) for f in fields]).statistic)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stsb", type=Path, required=True, help="sts-test.csv")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    measured: list[dict[str, Any]] = []
    with Embedder() as embedder:
        score = round(sts(embedder, arguments.stsb), 4)
        measured.append(rows.row("quality-stsb", "hotbed", MODEL, spearman=score))
    rows.show("Quality", measured, ["suite", "system", "spearman"])
    if arguments.out:
        rows.append(arguments.out, measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
