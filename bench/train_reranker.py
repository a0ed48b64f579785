"""Fine-tunes a small cross-encoder, since no package carries the weights of one:

    python -m bench.train_reranker --stsb sts-test.csv --model FOLDER

The default model's encoder under a new head of one label, BERT's pooler and classifier, is trained
on 1,000 pairs of the STS benchmark's test part and scored on the other 379, by Hotbed and by
sentence-transformers' CrossEncoder. It shows that a trained reranker keeps its quality on the whole
way through Hotbed; as a reranker it is no match for one trained on a million pairs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from bench.quality import sts_pairs
from hotbed import Reranker
from hotbed.bench import rows
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.defaults import DEFAULT_MODEL

Pairs = Sequence[tuple[str, str]]
_BATCH = 16
_MAX_TOKENS = 128
_HEAD_RATE, _ENCODER_RATE = 1e-3, 5e-5


def fine_tune(pairs: Pairs, scores: Sequence[float], folder: Path, *, epochs: int) -> Path:
    """Train on pairs with scores of 0 to 1; write a folder that Hotbed reads, and return it.

    The order of the pairs and the head's first weights are seeded.
    """
    torch.manual_seed(0)
    base = load_checkpoint(DEFAULT_MODEL).folder
    level = logging.get_verbosity()
    logging.set_verbosity_error()  # the head is new, as it should be
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    logging.set_verbosity(level)
    tokenizer = AutoTokenizer.from_pretrained(base)
    model.bert.embeddings.requires_grad_(False)  # half of the weights: too few pairs to move them
    head = [*model.classifier.parameters(), *model.bert.pooler.parameters()]
    optimizer = torch.optim.AdamW(
        [
            {"params": head, "lr": _HEAD_RATE},
            {"params": model.bert.encoder.parameters(), "lr": _ENCODER_RATE},
        ]
    )
    targets = torch.tensor(scores, dtype=torch.float32)
    steps = epochs * -(-len(pairs) // _BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(pairs)).split(_BATCH):
            chosen = [pairs[i] for i in batch.tolist()]
            inputs = tokenizer(
                [a for a, _ in chosen],
                [b for _, b in chosen],
                padding=True,
                truncation=True,
                max_length=_MAX_TOKENS,
                return_tensors="pt",
            )
            logits = model(**inputs).logits[:, 0]
            binary_cross_entropy_with_logits(logits, targets[batch]).backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def scores_by_both(folder: Path, pairs: Pairs) -> dict[str, NDArray[np.float32]]:
    """Scores of 0 to 1 by system."""
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folder), device="cpu", local_files_only=True)
    with Reranker(str(folder), device="cpu") as reranker:
        ours = reranker.predict(pairs)
    return {
        "hotbed": ours,
        "sentence-transformers": model.predict(list(pairs), show_progress_bar=False),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stsb", type=Path, required=True, help="sts-test.csv")
    parser.add_argument("--model", type=Path, required=True, help="folder to write it to")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--out", type=Path, help="a file of result rows")
    asked = parser.parse_args()
    left, right, human = sts_pairs(asked.stsb)
    pairs = list(zip(left, right, strict=True))
    order = np.random.default_rng(0).permutation(len(pairs)).tolist()
    taught, held_out = order[:1000], order[1000:]
    fine_tune(
        [pairs[i] for i in taught],
        [human[i] / 5 for i in taught],
        asked.model,
        epochs=asked.epochs,
    )
    measured: list[dict[str, Any]] = []
    for system, scores in scores_by_both(asked.model, [pairs[i] for i in held_out]).items():
        score = spearmanr(scores, [human[i] for i in held_out]).statistic
        measured.append(
            rows.row(
                "quality-stsb-379",
                system,
                "minilm-cross-encoder, 1000 pairs",
                spearman=round(float(score), 4),
            )
        )
    rows.show("Quality of a reranker", measured, ["suite", "system", "spearman"])
    if asked.out:
        rows.append(asked.out, measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
