"""Cuts a long request into chunks that fit a step."""

from __future__ import annotations

import numpy as np

from hotbed.core.ragged import Int32Array


def split(
    lengths: Int32Array,
    *,
    max_tokens: int,
    max_sequences: int,
    counts: Int32Array | None = None,
) -> list[tuple[int, int]]:
    """Contiguous chunks that cover all sequences in order, each as full as it can be.

    Args:
        lengths: int32 [S], tokens of each sequence.
        max_tokens: most tokens of a chunk; a sequence longer than that is a chunk of its own.
        max_sequences: most sequences of a chunk.
        counts: int32 [S], as how many sequences each one counts; None: as one. One that counts as
            more than `max_sequences` is a chunk of its own.

    Returns:
        ``(start, stop)`` of each chunk, stop exclusive, start < stop.

    Raises:
        ValueError: if a ceiling is below 1.
    """
    if max_tokens < 1 or max_sequences < 1:
        raise ValueError(
            f"max_tokens and max_sequences must be at least 1, got {max_tokens} and {max_sequences}"
        )
    ends = np.cumsum(lengths, dtype=np.int64)
    counted = None if counts is None else np.cumsum(counts, dtype=np.int64)
    chunks: list[tuple[int, int]] = []
    start, tokens_before, counted_before = 0, 0, 0
    while start < len(ends):
        fitting = int(np.searchsorted(ends, tokens_before + max_tokens, side="right"))
        if counted is None:
            last = start + max_sequences
        else:
            last = int(np.searchsorted(counted, counted_before + max_sequences, side="right"))
        stop = max(start + 1, min(fitting, last))
        chunks.append((start, stop))
        start, tokens_before = stop, int(ends[stop - 1])
        counted_before = 0 if counted is None else int(counted[stop - 1])
    return chunks
