"""The Python API of models that score: pairs in, scores out, in this process, without a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from hotbed.bulk.loaded import LoadedModel
from hotbed.bulk.windows import Encode, compute
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.errors import HotbedError, invalid, shift_input_index
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.attention.select import AttentionSettings
from hotbed.rose.engine import RoseEngine
from hotbed.text.pairs import PairFields, PairOptions, PairTokenizer
from hotbed.text.tokenizer import EncodeOptions, Tokenizer

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A document's place in the list that was given, its score and its text."""

    index: int
    score: float
    document: str


class Reranker(LoadedModel):
    """One model that scores, in this process: a reranker, or a classifier of texts or pairs.

    >>> with Reranker("BAAI/bge-reranker-base") as reranker:
    ...     best = reranker.rank("a question", ["a document", "another one"], top_k=1)

    Args:
        model: local folder or hub name of the model.
        device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or ``cuda:N``.
        dtype: type of the compute: ``auto`` (float32 on a CPU, bfloat16 on a GPU), ``float32``,
            ``bfloat16`` or, on a GPU, ``fp8``.
        invariant: whether a pair's score must be the same bytes alone and in every batch.
        num_threads: CPU threads; None takes torch's default.
        offline: True forbids network calls; None follows ``HF_HUB_OFFLINE``.
        fast_tokenizers: ``auto`` uses an installed fast tokenizer that passes its self-check.
        attention: backend on a GPU: ``auto``, ``sdpa``, ``varlen`` or ``fa4``.
        kernel_dir: folder of kernels built ahead of time, for a GPU.

    Raises:
        HotbedError: the model cannot be found, read or run, or does not score; the message says
            what is wrong.
    """

    def __init__(
        self,
        model: str,
        *,
        device: str = "auto",
        dtype: str = "auto",
        invariant: bool = False,
        num_threads: int | None = None,
        offline: bool | None = None,
        fast_tokenizers: Literal["auto", "off"] = "auto",
        attention: str = "auto",
        kernel_dir: Path | None = None,
    ) -> None:
        checkpoint = load_checkpoint(model, offline=offline, task="score")
        assert checkpoint.head is not None, "a model that scores has a head: this is a bug"
        tokenizer = Tokenizer.load(
            checkpoint.tokenizer,
            max_tokens=checkpoint.max_tokens,
            vocab_size=checkpoint.config.vocab_size,
            fast=fast_tokenizers,
        )
        self._pairs = PairTokenizer(tokenizer, checkpoint.head)
        self._engine = RoseEngine.load(
            checkpoint,
            device=device,
            dtype=dtype,
            invariant=invariant,
            attention=AttentionSettings(attention, kernel_dir),
            num_threads=num_threads,
        )

    def predict(
        self,
        pairs: Pair | Sequence[Pair],
        *,
        raw_scores: bool = False,
        instruction: str | None = None,
        truncate: bool = True,
        truncation_side: Literal["left", "right"] = "right",
        show_progress: bool | None = None,
    ) -> NDArray[np.float32]:
        """Score pairs.

        Args:
            pairs: one tuple of query and document, or a sequence of pairs.
            raw_scores: logits, without the model's activation (`info.activation`).
            instruction: for models whose template has one; None: the model's own.
            truncate: cut documents that do not fit beside their query instead of refusing them.
            truncation_side: the end of the document that is cut.
            show_progress: a bar on stderr; None shows it on a terminal from 1,000 pairs on.

        Returns:
            float32 [pairs] of a model with one label, else [pairs, labels], in the order given;
            for one pair the same without the first dimension.

        Raises:
            HotbedError: INVALID_INPUT naming the text and the limit; INTERNAL if the model gave a
                score that is not finite.
        """
        if isinstance(pairs, tuple) and len(pairs) == 2 and isinstance(pairs[0], str):
            row: NDArray[np.float32] = self.predict(
                [pairs],
                raw_scores=raw_scores,
                instruction=instruction,
                truncate=truncate,
                truncation_side=truncation_side,
                show_progress=False,
            )[0]
            return row
        queries, documents = _columns(cast("Sequence[Pair]", pairs))
        options = PairOptions(
            truncate=truncate,
            truncation_side=truncation_side,
            instruction=instruction,
            fields=PairFields("pairs[{}][0]", "pairs[{}][1]"),
        )
        return self._score(queries, documents, options, raw_scores, show_progress)

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top_k: int | None = None,
        raw_scores: bool = False,
        instruction: str | None = None,
        truncate: bool = True,
        truncation_side: Literal["left", "right"] = "right",
        show_progress: bool | None = None,
    ) -> list[Ranked]:
        """Documents by their score for the query, best first; equal ones in the order given.

        Args:
            query: what is asked.
            documents: at least one.
            top_k: only the best so many; None: all.
            raw_scores: see `predict`, as the other arguments.
            instruction: see `predict`.
            truncate: see `predict`.
            truncation_side: see `predict`.
            show_progress: see `predict`.

        Raises:
            HotbedError: as of `predict`; INVALID_INPUT if the model has several labels.
        """
        if len(self.info.labels) != 1:
            raise invalid(
                f"the model has {len(self.info.labels)} labels: it classifies and cannot rank",
                "model",
            )
        if top_k is not None and top_k < 1:
            raise invalid(f"top_k must be at least 1, got {top_k}", "top_k")
        options = PairOptions(
            truncate=truncate,
            truncation_side=truncation_side,
            instruction=instruction,
            fields=PairFields(query="query"),
        )
        scores = self._score(query, documents, options, raw_scores, show_progress)
        order = np.argsort(-scores, kind="stable")[:top_k]
        return [Ranked(int(i), float(scores[i]), documents[i]) for i in order]

    def classify(
        self,
        texts: Sequence[str],
        *,
        raw_scores: bool = False,
        truncate: bool = False,
        truncation_side: Literal["left", "right"] = "right",
        show_progress: bool | None = None,
    ) -> NDArray[np.float32]:
        """Score texts that stand alone.

        Args:
            texts: several, none of them empty.
            raw_scores: logits, without the model's activation.
            truncate: cut texts that are too long instead of refusing them.
            truncation_side: the end that is cut.
            show_progress: see `predict`.

        Returns:
            float32 [texts, labels], labels in the order of `info.labels`.

        Raises:
            HotbedError: INVALID_INPUT naming the text and the limit, or if the model takes pairs
                only; INTERNAL if it gave a score that is not finite.
        """
        tokenizer = self._pairs.singles
        options = EncodeOptions(truncate=truncate, truncation_side=truncation_side)

        def encode(start: int, stop: int) -> RaggedBatch:
            try:
                return tokenizer.encode(texts[start:stop], options).batch
            except HotbedError as error:
                raise shift_input_index(error, start) from None

        return self._compute(encode, len(texts), raw_scores, show_progress)

    def _score(
        self,
        queries: str | Sequence[str],
        documents: Sequence[str],
        options: PairOptions,
        raw_scores: bool,
        show_progress: bool | None,
    ) -> NDArray[np.float32]:
        def encode(start: int, stop: int) -> RaggedBatch:
            firsts = queries if isinstance(queries, str) else queries[start:stop]
            part = documents[start:stop]
            return self._pairs.encode(firsts, part, options, first_index=start).batch

        rows = self._compute(encode, len(documents), raw_scores, show_progress)
        return rows[:, 0] if rows.shape[1] == 1 else rows

    def _compute(
        self, encode: Encode, count: int, raw_scores: bool, show_progress: bool | None
    ) -> NDArray[np.float32]:
        return compute(
            self._engine,
            count,
            encode,
            OutputSpec(raw_scores=raw_scores),
            what="scoring",
            show_progress=show_progress,
        )


def _columns(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    queries, documents = [], []
    for i, pair in enumerate(pairs):
        if isinstance(pair, str) or len(pair) != 2:
            raise invalid(f"pairs[{i}] must be a query and a document, two strings", f"pairs[{i}]")
        queries.append(pair[0])
        documents.append(pair[1])
    return queries, documents
