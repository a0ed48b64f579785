"""Inputs of exactly the named lengths, cut from real text: each as text and as its token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from hotbed.bench.cells import Cell
from hotbed.core.errors import invalid

_MAX_ATTEMPTS = 200
_CALLS = {"latency": 16, "scoring": 4, "concurrency": 32, "throughput": 1}
"""Different requests of a cell; they are sent in turn."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text and what the model's tokenizer makes of it, special tokens included."""

    text: str
    ids: tuple[int, ...]


class Inputs:
    """Cuts texts for one model.

    Args:
        tokenizer: of the model; it neither pads nor truncates.
        corpus: real text.
    """

    def __init__(self, tokenizer: Tokenizer, corpus: str) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._words = corpus.split()
        self._pools: dict[int, list[Text]] = {}

    def of(self, num_tokens: int, count: int) -> list[Text]:
        """`count` different texts of exactly `num_tokens` tokens; the same ones each time.

        Raises:
            HotbedError: INVALID_INPUT if the corpus is too short, or its text cannot be cut so.
        """
        pool = self._pools.setdefault(num_tokens, [])
        random = np.random.default_rng([num_tokens, len(pool)])
        seen = {text.ids for text in pool}
        attempts = 0
        while len(pool) < count:
            if attempts == _MAX_ATTEMPTS * count:
                raise invalid(f"found no {count} texts of exactly {num_tokens} tokens", "texts")
            attempts += 1
            text = self._cut(num_tokens, random)
            if text is not None and text.ids not in seen:
                seen.add(text.ids)
                pool.append(text)
        return pool[:count]

    def of_cell(self, cell: Cell) -> list[list[Text]]:
        """The cell's requests, `n` texts each."""
        calls = max(_CALLS[cell.suite], 1)
        texts = self.of(cell.tokens, calls * cell.n)
        return [texts[i * cell.n : (i + 1) * cell.n] for i in range(calls)]

    def _cut(self, num_tokens: int, random: np.random.Generator) -> Text | None:
        """A text that begins at a random word, or None if the cut is not exact."""
        last_start = len(self._words) - num_tokens
        if last_start < 1:
            raise invalid(
                f"the texts have {len(self._words)} words, inputs of {num_tokens} tokens need more",
                "texts",
            )
        start = int(random.integers(0, last_start))
        # A word is a token at least.
        text = " ".join(self._words[start : start + num_tokens])
        whole = self._tokenizer.encode(text)
        special = self._tokenizer.num_special_tokens_to_add(is_pair=False)
        content = num_tokens - special
        # Offsets of special tokens are empty.
        ends = [stop for begin, stop in whole.offsets if stop > begin]
        if not 0 < content <= len(ends):
            return None
        cut = text[: ends[content - 1]]
        ids = self._tokenizer.encode(cut).ids
        return Text(cut, tuple(ids)) if len(ids) == num_tokens else None


def tokens_of(texts: Sequence[Text]) -> int:
    """Tokens of them all."""
    return sum(len(text.ids) for text in texts)
