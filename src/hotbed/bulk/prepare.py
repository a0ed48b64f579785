"""From a window's rows to token ids: tokenised, judged by the policies, duplicates found."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotbed.bulk.block import Problem
from hotbed.bulk.chunk import chunk
from hotbed.bulk.policies import Policies
from hotbed.bulk.read import Window
from hotbed.core.ragged import RaggedBatch
from hotbed.text.options import EncodeOptions, Measured
from hotbed.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Prepared:
    """A window ready for the device: U sequences to compute, R rows of output.

    Attributes:
        window: that it is of.
        take: int64 [R], each output row's place in the window's table.
        spans: int64 [R, 3] with (chunk, first character, last + 1) where texts may be chunked.
        texts: of each output row, where one of them is a part of a text: a whole text in each row
            of its parts would be its length squared. None: those of the table.
        batch: the U sequences.
        first: number of the first of them within its part.
        gather: int64 [R], number within the part of each row's sequence, at most first + U - 1.
        problems: of all rows that are not embedded as they are.
    """

    window: Window
    take: NDArray[np.int64]
    spans: NDArray[np.int64] | None
    texts: list[str] | None
    batch: RaggedBatch
    first: int
    gather: NDArray[np.int64]
    problems: list[Problem]


class Preparer:
    """Prepares windows in their order."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        options: EncodeOptions,
        policies: Policies,
        *,
        text: str,
        dedupe: bool,
    ) -> None:
        self._tokenizer = tokenizer
        self._options = options
        self._policies = policies
        self._text = text
        self._dedupe = dedupe
        # Of the part at hand: sequences so far, and each text's number.
        self._part = -1
        self._num_sequences = 0
        self._seen: dict[bytes, int] = {}

    def prepare(self, window: Window) -> Prepared:
        """Tokenise a window.

        Raises:
            HotbedError: naming the row that a policy says to fail on.
        """
        if window.part != self._part:
            self._part, self._num_sequences, self._seen = window.part, 0, {}
        rows = window.rows
        problems = [self._policies.located(problem) for problem in rows.problems]
        texts: list[str] = rows.table.column(self._text).to_pylist()
        batches, order, take, spans = self._sequences(window, texts, problems)
        batch = RaggedBatch.concatenate(batches)
        first = self._num_sequences
        parts = None
        if len(batches) > 1:
            parts = [texts[t][a:b] for t, (_, a, b) in zip(take, spans, strict=True)]
        if self._dedupe:
            pieces = parts or [texts[t] for t in take]
            wanted, gather = self._without_duplicates(pieces)
        else:
            wanted, gather = list(range(len(order))), list(range(first, first + len(order)))
        selected = [order[i] for i in wanted]
        if selected != list(range(batch.num_sequences)):
            batch = batch.select(selected)
        self._num_sequences += len(selected)
        chunked = self._policies.too_long == "chunk"
        return Prepared(
            window,
            np.array(take, dtype=np.int64),
            np.array(spans, dtype=np.int64).reshape(-1, 3) if chunked else None,
            parts,
            batch,
            first,
            np.array(gather, dtype=np.int64),
            sorted(problems, key=lambda problem: problem.row),
        )

    def _sequences(
        self, window: Window, texts: list[str], problems: list[Problem]
    ) -> tuple[list[RaggedBatch], list[int], list[int], list[tuple[int, int, int]]]:
        """(batches, index into them end to end of each output row, its place, its span)."""
        order: list[int] = []
        take: list[int] = []
        spans: list[tuple[int, int, int]] = []
        if not texts:
            return [RaggedBatch.from_sequences([])], order, take, spans
        max_chars, limit = self._tokenizer.max_chars, self._tokenizer.max_tokens
        measured = self._tokenizer.measure([text[:max_chars] for text in texts], self._options)
        batches = [measured.batch]
        fine = ~(measured.blank | measured.unknown) & (measured.lengths <= limit)
        for place, text in enumerate(texts):
            row = window.rows.first_row + int(window.rows.good[place])
            if not (fine[place] and len(text) <= max_chars):
                problem = self._judge(row, text, measured, place)
                problems.append(problem)
                if problem.action == "skipped":
                    continue
                if problem.action == "chunked":
                    parts, of_parts = chunk(self._tokenizer, text, self._options)
                    assert of_parts is not None, "a long text without tokens: this is a bug"
                    start = sum(b.num_sequences for b in batches)
                    batches.append(of_parts.batch)
                    order += range(start, start + len(parts))
                    take += [place] * len(parts)
                    spans += [(i, a, b) for i, (a, b) in enumerate(parts)]
                    continue
            order.append(place)
            take.append(place)
            spans.append((0, 0, len(text)))
        return batches, order, take, spans

    def _judge(self, row: int, text: str, measured: Measured, place: int) -> Problem:
        max_chars, limit = self._tokenizer.max_chars, self._tokenizer.max_tokens
        if measured.blank[place]:
            detail = f"{self._text} holds no text"
            return self._policies.bad_row(row, "empty", detail)
        if measured.unknown[place]:
            detail = f"{self._text} holds a token that the model does not know"
            return self._policies.bad_row(row, "broken", detail)
        if len(text) > max_chars:
            detail = f"{self._text} has {len(text)} characters, the limit is {max_chars}"
        else:
            detail = f"{self._text} has {measured.lengths[place]} tokens, the limit is {limit}"
        return self._policies.long_text(row, detail)

    def _without_duplicates(self, texts: Iterable[str]) -> tuple[list[int], list[int]]:
        """(indexes of the texts that are new in the part, number of each text's sequence)."""
        wanted: list[int] = []
        gather: list[int] = []
        for index, text in enumerate(texts):
            key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            number = self._seen.setdefault(key, self._num_sequences + len(wanted))
            if number == self._num_sequences + len(wanted):
                wanted.append(index)
            gather.append(number)
        return wanted, gather
