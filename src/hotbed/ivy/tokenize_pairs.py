"""Pairs of texts to token ids without holding up the event loop."""

from __future__ import annotations

from collections.abc import Sequence

from hotbed.core.errors import invalid
from hotbed.core.ragged import RaggedBatch
from hotbed.ivy.bounded import map_bounded
from hotbed.ivy.spread import check_request_tokens
from hotbed.ivy.tokenize import INLINE_US, PIECE_US, TokenizeStage
from hotbed.text.pairs import PairOptions, PairTokenizer
from hotbed.text.tokenizer import EncodeOptions


class PairTokenizeStage:
    """The model's form of pairs, on the threads of its tokenizer's stage."""

    def __init__(
        self, pairs: PairTokenizer, stage: TokenizeStage, *, max_request_tokens: int
    ) -> None:
        self._pairs = pairs
        self._stage = stage
        self._max_request_tokens = max_request_tokens

    @property
    def fingerprint_parts(self) -> tuple[str, ...]:
        """What the sequences depend on besides texts, options and model."""
        return self._pairs.fingerprint_parts

    def instruction(self, options: PairOptions) -> str | None:
        """What the pairs get: the request's, else the model's own; None: it takes none."""
        return options.instruction or self._pairs.default_instruction

    async def encode(
        self,
        queries: str | Sequence[str] | None,
        documents: Sequence[str],
        options: PairOptions,
    ) -> RaggedBatch:
        """One sequence a pair, in order; arguments and errors as of `PairTokenizer.encode`.

        Without queries each document is a text of its own, which errors name ``input[i]``.

        Raises:
            HotbedError: TOO_LARGE for more than `max_request_tokens` in all.
        """
        if queries is None:
            _ = self._pairs.singles  # whether the model takes them
            return await self._stage.encode(documents, _of_text(options))
        pieces = self._cut(queries, documents)
        if len(pieces) > 1 and isinstance(queries, str):
            # One query for thousands of documents is thousands of times its tokens.
            query = queries
            least = await self._stage.run(lambda: self._pairs.least_tokens(query, options))
            self.check_size(least * len(documents), options)
        if len(pieces) == 1 and pieces[0][2] < INLINE_US:
            return self._pairs.encode(queries, documents, options).batch

        async def encode_piece(piece: tuple[int, int, float]) -> RaggedBatch:
            start, stop, _ = piece
            encoded = await self._stage.run(
                lambda: self._pairs.encode(
                    queries if isinstance(queries, str) else queries[start:stop],
                    documents[start:stop],
                    options,
                    first_index=start,
                )
            )
            return encoded.batch

        return RaggedBatch.concatenate(
            await map_bounded(encode_piece, pieces, limit=self._stage.num_threads)
        )

    def check_size(self, num_tokens: int, options: PairOptions) -> None:
        """Raises TOO_LARGE past the gateway's limit on a request."""
        field = options.fields.document.partition("[")[0]
        check_request_tokens(num_tokens, self._max_request_tokens, field)

    def _cut(
        self, queries: str | Sequence[str], documents: Sequence[str]
    ) -> list[tuple[int, int, float]]:
        """(first pair, last + 1, estimated cost in µs) of pieces of about PIECE_US each.

        One query for all documents counts with each of them: in a chat template it is tokenised
        with each.
        """
        is_one = isinstance(queries, str)
        query_us = self._pairs.estimate_us([queries]) if isinstance(queries, str) else 0.0
        pieces = []
        start, cost_us = 0, 0.0
        for index, document in enumerate(documents):
            texts = (document,) if is_one else (queries[index], document)
            cost_us += self._pairs.estimate_us(texts) + query_us
            if cost_us >= PIECE_US:
                pieces.append((start, index + 1, cost_us))
                start, cost_us = index + 1, 0.0
        if start < len(documents) or not pieces:
            pieces.append((start, len(documents), cost_us))
        return pieces


def _of_text(options: PairOptions) -> EncodeOptions:
    """What of the options holds for a text alone."""
    if options.instruction is not None:
        raise invalid("An instruction is for pairs only.", "instruction")
    return EncodeOptions(
        truncate=options.truncate,
        truncation_side=options.truncation_side,
        max_tokens=options.max_tokens,
    )
