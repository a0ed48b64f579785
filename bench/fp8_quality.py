"""What FP8 costs an embedder on real weights, emulated on a CPU: `python -m bench.fp8_quality`.

    python -m bench.fp8_quality --stsb sts-test.csv --out bench/results/fp8-quality.jsonl

The default model three times over the same texts: in fp32, in BF16, and in fp32 with the weights
of its linear layers and what they read rounded to FP8 as `hotbed.rose.layers.fp8_linear` has them
on a GPU (a scale for each output channel and each token; the rest there is BF16). Cosines to fp32
are per text; the labelled set is the STS benchmark's test part, see `bench.quality`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import spearmanr
from torch import Tensor

from hotbed import Embedder
from hotbed.bench import rows
from hotbed.rose.kernels.fp8 import quantize_rows
from hotbed.rose.layers import linear
from hotbed.rose.layers.linear import Linear
from hotbed.rose.models import bert

MODEL = "all-minilm-l6-v2"


@contextmanager
def emulated_fp8() -> Iterator[None]:
    """Linear layers that are built and called inside compute with operands rounded to FP8."""
    build = Linear.__init__

    def init(self: Linear, weight: Tensor, *args: Any, **kwargs: Any) -> None:
        build(self, quantize_rows(weight).float().to(weight.dtype), *args, **kwargs)

    def call(self: Linear, x: Tensor, residual: Tensor | None = None) -> Tensor:
        y = F.linear(quantize_rows(x).float(), self.weight, self._bias)
        if residual is not None:
            return y + residual
        return y if self._activation == "none" else linear._ACTIVATIONS[self._activation](y)

    with (
        mock.patch.object(Linear, "__init__", init),
        mock.patch.object(Linear, "__call__", call),
        mock.patch.object(linear, "can_pack", return_value=False),
        # One kernel for all layers, which would go past the above.
        mock.patch.object(bert, "short_encoder", return_value=None),
    ):
        yield


def rows_of(texts: list[str], dtype: str) -> np.ndarray:
    with Embedder(device="cpu", dtype=dtype) as embedder:
        return embedder.embed(texts, truncate=True, show_progress=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stsb", type=Path, required=True, help="sts-test.csv")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    lines = arguments.stsb.read_text(encoding="utf-8").splitlines()
    fields = [line.split("\t") for line in lines]
    scores = [float(f[4]) for f in fields]
    texts = [f[5] for f in fields] + [f[6] for f in fields]
    got = {"fp32": rows_of(texts, "float32"), "bf16": rows_of(texts, "bfloat16")}
    with emulated_fp8():
        got["fp8, emulated"] = rows_of(texts, "float32")
    measured: list[dict[str, Any]] = []
    for name, embedded in got.items():
        left, right = np.split(embedded, 2)
        found = float(spearmanr((left * right).sum(1), scores).statistic)
        cosines = (embedded.astype(np.float64) * got["fp32"]).sum(1)
        measured.append(
            rows.row(
                "fp8-quality",
                "hotbed",
                MODEL,
                n=len(texts),
                spearman=round(found, 4),
                cosine_min=round(float(cosines.min()), 5),
                cosine_median=round(float(np.median(cosines)), 5),
                settings=name,
            )
        )
    columns = ["settings", "spearman", "cosine_min", "cosine_median"]
    rows.show("FP8 on real weights", measured, columns)
    if arguments.out:
        rows.append(arguments.out, measured)
    return 0


if __name__ == "__main__":
    torch.manual_seed(0)
    sys.exit(main())
