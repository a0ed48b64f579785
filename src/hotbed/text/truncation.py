"""Truncation of token sequences that keeps the template's special tokens."""

from __future__ import annotations

from typing import Literal

import numpy as np

from hotbed.core.ragged import RaggedBatch
from hotbed.text.template import Template

TruncationSide = Literal["left", "right"]


def truncate(
    batch: RaggedBatch, *, max_tokens: int, side: TruncationSide, template: Template
) -> tuple[RaggedBatch, int]:
    """Cut every sequence longer than `max_tokens` to exactly that length.

    Args:
        batch: S sequences.
        max_tokens: limit, special tokens included.
        side: end of the text at which tokens are dropped.
        template: its prefix stays where a sequence begins with it, its suffix where one ends with
            it; the same as Hugging Face's truncation, which cuts before it adds them.

    Returns:
        The batch (the same object if nothing was cut) and how many sequences were cut.
    """
    lengths = batch.lengths
    too_long = np.flatnonzero(lengths > max_tokens)
    if not len(too_long):
        return batch, 0
    kept = np.ones(batch.num_tokens, dtype=np.bool_)
    for index in too_long.tolist():
        ids = batch.sequence(index)
        excess = len(ids) - max_tokens
        if side == "left":
            head = len(template.prefix)
            cut = head if ids[:head].tolist() == list(template.prefix) else 0
        else:
            tail = len(template.suffix)
            ends_with = ids[len(ids) - tail :].tolist() == list(template.suffix)
            cut = len(ids) - excess - (tail if ends_with else 0)
        start = batch.cu_seqlens[index] + cut
        kept[start : start + excess] = False
    cut_lengths = np.minimum(lengths, np.int32(max_tokens))
    return RaggedBatch.from_lengths(batch.token_ids[kept], cut_lengths), len(too_long)
