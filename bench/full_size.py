"""Full-size models on a card against `transformers`: `python -m bench.full_size`.

Seeded random weights in the real shapes are saved as their authors' files would be, loaded by
`RoseEngine.load` in BF16, and held to `transformers` in fp32 with the same weights: every row's
cosine >= 0.999, for lengths on both sides of the paths' limits, alone, mixed and turned round,
eager, captured and replayed. A difference between texts is asked for, too, so that rows which
ignore their text do not pass.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from transformers import AutoModel

from hotbed.bench.folders import write_folder
from hotbed.bench.shapes import SHAPES, Shape
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.attention.select import AttentionSettings
from hotbed.rose.engine import RoseEngine

MIN_COSINE = 0.999
MAX_OTHER_COSINE = 0.98
LENGTHS = (1, 2, 31, 32, 33, 64, 96, 128, 129, 256, 257, 511, 512, 513, 1000, 2048)
# A class of 512s as well: steps of one length take paths of their own.
UNIFORM = (512,) * 9
MODELS = ("qwen3-embedding-0.6b", "pplx-embed-0.6b", "bge-m3")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel-dir", type=Path)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    attention = AttentionSettings(kernel_dir=arguments.kernel_dir)
    failed = False
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            smallest, other = check(name, Path(folder), attention, arguments.device)
        passes = smallest >= MIN_COSINE and other <= MAX_OTHER_COSINE
        failed |= not passes
        print(
            f"{name}: smallest cosine {smallest:.6f}, between different texts at most {other:.3f}:",
            "pass" if passes else "FAIL",
            flush=True,
        )
    return int(failed)


def check(
    name: str, folder: Path, attention: AttentionSettings, device: str
) -> tuple[float, float]:
    """(smallest cosine to transformers, largest cosine between different texts)."""
    shape = SHAPES[name]
    random = np.random.default_rng(0)
    # From 5 on: 1 is XLM-R's padding, whose position transformers gives to no token.
    texts = [
        random.integers(5, shape.config.vocab_size, n).astype(np.int32) for n in LENGTHS + UNIFORM
    ]
    expected = reference_rows(shape, texts, folder, device)
    engine = RoseEngine.load(load_checkpoint(str(folder)), device=device, attention=attention)
    mixed, uniform = texts[: len(LENGTHS)], texts[len(LENGTHS) :]
    smallest = 1.0
    for _ in ("eager", "captured", "replayed"):
        for rows, wanted in (
            (embed(engine, mixed), expected[: len(mixed)]),
            (embed(engine, mixed[::-1])[::-1], expected[: len(mixed)]),
            (np.concatenate([embed(engine, [t]) for t in mixed]), expected[: len(mixed)]),
            (embed(engine, uniform), expected[len(mixed) :]),
        ):
            smallest = min(smallest, float(cosines(rows, wanted).min()))
    engine.close()
    unit = F.normalize(torch.from_numpy(expected), dim=1)
    pairs = unit @ unit.T - 2 * torch.eye(len(unit))
    return smallest, float(pairs.max())


@torch.inference_mode()
def reference_rows(
    shape: Shape, texts: list[NDArray[np.int32]], folder: Path, device: str
) -> NDArray[np.float32]:
    """Rows of transformers in fp32; the model's files are in `folder` then."""
    write_folder(shape, folder, device=torch.device(device), texts=[__doc__ or ""])
    model: Any = AutoModel.from_pretrained(folder, dtype=torch.float32).to(device).eval()
    pooling = shape.recipe.pooling
    rows = []
    for text in texts:
        ids = torch.from_numpy(text).to(device).long()[None]
        states = model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
        row = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pooling]
        rows.append(F.normalize(row, dim=0).cpu().numpy())
    return np.stack(rows)


def embed(engine: RoseEngine, texts: list[NDArray[np.int32]]) -> NDArray[np.float32]:
    """The engine's rows."""
    result = engine.step(RaggedBatch.from_sequences(texts)).wait()
    if not result.finite.all():
        sys.exit("a row is not finite")
    return result.rows[0]


def cosines(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of each pair of rows."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    return (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)


if __name__ == "__main__":
    sys.exit(main())
