"""Pairs of a query and a document become ragged batches, in the form the model was trained on.

Rules besides those of `hotbed.text.tokenizer`:

- The two texts are tokenised each by itself and joined by the tokenizer's own template, as
  `transformers` does; or stand in the chat template of Qwen3-Reranker or mxbai-rerank-v2.
- What is too long is cut at the end (or start) of the document. The query and the template are
  never cut: a query that leaves no room for a token of the document is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hotbed.checkpoint.records import PairForm, ScoreHead
from hotbed.core.errors import invalid
from hotbed.core.ragged import Int32Array, RaggedBatch
from hotbed.text import mxbai_reranker, qwen3_reranker
from hotbed.text.chat_form import ChatForm
from hotbed.text.pair_template import PairTemplate, find_pair_template
from hotbed.text.texts import blank_error, checked_texts, without_surrogates
from hotbed.text.tokenizer import Tokenizer
from hotbed.text.truncation import TruncationSide

CHAT_FORMS: dict[PairForm, ChatForm] = {
    "qwen3_reranker": qwen3_reranker.FORM,
    "mxbai_reranker": mxbai_reranker.FORM,
}


@dataclass(frozen=True, slots=True)
class PairFields:
    """How errors name the texts: formats for a pair's index, or plain names."""

    query: str = "queries[{}]"
    document: str = "documents[{}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """How one request's pairs are encoded.

    Attributes:
        truncate: cut documents that are too long instead of refusing them.
        truncation_side: the end of the document that is cut.
        max_tokens: a lower limit than the model's for the whole pair; None: the model's.
        max_document_tokens: cut every document to so many tokens of its own; None: no such limit.
        instruction: for a template that has one; None: the model's default.
        fields: names for errors.
    """

    truncate: bool = True
    truncation_side: TruncationSide = "right"
    max_tokens: int | None = None
    max_document_tokens: int | None = None
    instruction: str | None = None
    fields: PairFields = field(default_factory=PairFields)

    def __post_init__(self) -> None:
        if self.truncation_side not in ("left", "right"):
            raise invalid('truncation_side must be "left" or "right".', "truncation_side")
        limit = self.max_document_tokens
        if limit is not None and (isinstance(limit, bool) or limit < 1):
            raise invalid(
                f"max_document_tokens must be at least 1, got {limit}.", "max_document_tokens"
            )

    def limit(self, max_tokens: int) -> int:
        """Longest pair for this request, given the model's limit.

        Raises:
            HotbedError: INVALID_INPUT if the request's limit is above the model's, or below 1.
        """
        if self.max_tokens is None:
            return max_tokens
        if not 0 < self.max_tokens <= max_tokens:
            raise invalid(
                f"max_tokens must be from 1 to {max_tokens}; got {self.max_tokens}.", "max_tokens"
            )
        return self.max_tokens


DEFAULT_PAIR_OPTIONS = PairOptions()


@dataclass(frozen=True, slots=True)
class EncodedPairs:
    """A batch ready for a model, one sequence a pair, and how many documents were cut."""

    batch: RaggedBatch
    num_truncated: int


class PairTokenizer:
    """A model's tokenizer and the form of its pairs. Any thread may use it.

    Args:
        tokenizer: of the model.
        head: of the model; says which form, and whether the texts have token types.

    Raises:
        HotbedError: INVALID_INPUT if the tokenizer has no usable pair template, or the template
            leaves no room for texts.
    """

    def __init__(self, tokenizer: Tokenizer, head: ScoreHead) -> None:
        self._tokenizer = tokenizer
        self._form = CHAT_FORMS.get(head.pair_form)
        self._instruction: str | None = None
        if self._form is not None:
            self._instruction = head.instruction or self._form.default_instruction
            prefix, suffix = (
                tuple(tokenizer.encode_bare(list(pieces)).token_ids.tolist())
                for pieces in (self._form.prefix, self._form.suffix)
            )
            self._template = PairTemplate(prefix, (), suffix, None)
        else:
            self._template = find_pair_template(tokenizer.reference, token_types=head.token_types)
        if tokenizer.max_tokens < self._template.num_special_tokens + 2:
            raise invalid(
                f"max_tokens is {tokenizer.max_tokens}, but the template of a pair has "
                f"{self._template.num_special_tokens} tokens: no room for texts"
            )

    @property
    def default_instruction(self) -> str | None:
        """Where a request gives none, possibly empty; None: the template takes no instruction."""
        return self._instruction

    @property
    def singles(self) -> Tokenizer:
        """For texts that are classified alone.

        Raises:
            HotbedError: INVALID_INPUT if the model takes pairs only.
        """
        if self._form is not None:
            raise invalid("The model takes pairs of a query and a document only.", "model")
        return self._tokenizer

    @property
    def fingerprint_parts(self) -> tuple[str, ...]:
        """What the sequences depend on besides texts, options and model."""
        return (self._tokenizer.fingerprint, repr(self._template))

    def estimate_us(self, texts: Sequence[str]) -> float:
        """Rough CPU microseconds of tokenising these texts."""
        return self._tokenizer.estimate_us(texts)

    def least_tokens(self, query: str, options: PairOptions = DEFAULT_PAIR_OPTIONS) -> int:
        """Tokens that every pair with this query has at least, whatever its document.

        Raises:
            HotbedError: as of `encode`, for the query.
        """
        names = _Names(options.fields, 0)
        (head,) = self._heads(self._checked([query], names.query), options, names)
        return self._template.num_special_tokens + len(head) + 1

    def encode(
        self,
        queries: str | Sequence[str],
        documents: Sequence[str],
        options: PairOptions = DEFAULT_PAIR_OPTIONS,
        *,
        first_index: int = 0,
    ) -> EncodedPairs:
        """Tokenise; all pairs or none.

        Args:
            queries: one for all documents, or one a document.
            documents: at least one.
            options: of the request.
            first_index: index of the first pair in the request, for errors.

        Raises:
            HotbedError: INVALID_INPUT naming the text that is empty, too long, or holds a token
                that the model has no row for; TOO_LARGE for one of too many characters.
        """
        names = _Names(options.fields, first_index)
        firsts = self._checked([queries] if isinstance(queries, str) else queries, names.query)
        seconds = self._checked(documents, names.document)
        if not isinstance(queries, str) and len(firsts) != len(seconds):
            raise invalid(f"There are {len(firsts)} queries for {len(seconds)} documents.")
        # Before any document is looked at: in a chat template each stands behind its query.
        heads = self._heads(firsts, options, names)
        if self._form is None:
            batch = self._tokenizer.encode_bare(seconds)
            _refuse_empty(batch, names.document)
            tails = _sequences(batch)
        else:
            tails = self._tails(self._form, firsts, options, seconds)
        return self._assemble(heads, tails, options, names)

    def _checked(self, texts: Sequence[str], name: Callable[[int], str]) -> list[str]:
        return checked_texts(texts, max_chars=self._tokenizer.max_chars, name=name)

    def _heads(self, queries: list[str], options: PairOptions, names: _Names) -> list[Int32Array]:
        """Ids of what stands before the documents: the first texts, or instruction and query."""
        if self._form is not None:
            pieces = [self._pieces(self._form, query, options) for query in queries]
            flat = self._tokenizer.encode_bare([piece for some in pieces for piece in some])
            lengths = flat.lengths.reshape(len(queries), -1).sum(axis=1, dtype=np.int32)
            batch = RaggedBatch.from_lengths(flat.token_ids, lengths)
        elif options.instruction is not None:
            raise invalid("The model takes no instruction.", "instruction")
        else:
            batch = self._tokenizer.encode_bare(queries)
            _refuse_empty(batch, names.query)
        limit = options.limit(self._tokenizer.max_tokens)
        num_special = self._template.num_special_tokens
        longest = int(np.argmax(batch.lengths))
        num_tokens = int(batch.lengths[longest])
        if num_tokens + num_special + 1 > limit:
            raise _query_too_long(names.query(longest), num_tokens, num_special, limit)
        return _sequences(batch)

    def _pieces(self, form: ChatForm, query: str, options: PairOptions) -> tuple[str, ...]:
        """Texts of the head, as many for every query."""
        instruction = without_surrogates(options.instruction or self._instruction or "")
        return form.head(instruction, query)

    def _tails(
        self, form: ChatForm, queries: list[str], options: PairOptions, documents: list[str]
    ) -> list[Int32Array]:
        """Ids of the documents in the chat template.

        The head's last piece and the document are tokenised as one text, as the model card does it,
        and divided where the piece alone ends: the space before the document is part of the
        document's first token.
        """
        lasts = [self._pieces(form, query, options)[-1] for query in queries]
        alone = _sequences(self._tokenizer.encode_bare(lasts))
        is_one = len(lasts) == 1
        bodies = [f"{lasts[0 if is_one else i]} {document}" for i, document in enumerate(documents)]
        tails = []
        for i, whole in enumerate(_sequences(self._tokenizer.encode_bare(bodies))):
            head = alone[0 if is_one else i]
            assert np.array_equal(whole[: len(head)], head), "the head's tokens changed: a bug"
            tails.append(whole[len(head) :])
        return tails

    def _assemble(
        self,
        firsts: list[Int32Array],
        seconds: list[Int32Array],
        options: PairOptions,
        names: _Names,
    ) -> EncodedPairs:
        template = self._template
        prefix, middle, suffix = (
            np.array(ids, dtype=np.int32)
            for ids in (template.prefix, template.middle, template.suffix)
        )
        limit = options.limit(self._tokenizer.max_tokens)
        num_special = template.num_special_tokens
        pieces: list[Int32Array] = []
        lengths = np.empty(len(seconds), dtype=np.int32)
        starts = np.empty(len(seconds), dtype=np.int32)
        num_truncated = 0
        has_types = template.second_type_from is not None
        for i, second in enumerate(seconds):
            first = firsts[i if len(firsts) > 1 else 0]
            room = limit - num_special - len(first)
            if len(second) > room and not options.truncate:
                raise _pair_too_long(
                    names.document(i), num_special + len(first) + len(second), limit
                )
            keep = min(room, options.max_document_tokens or room)
            if len(second) > keep:
                num_truncated += 1
            kept = second[:keep] if options.truncation_side == "right" else second[-keep:]
            pieces += (prefix, first, middle, kept, suffix)
            lengths[i] = num_special + len(first) + len(kept)
            starts[i] = len(prefix) + len(first) + (template.second_type_from or 0)
        batch = RaggedBatch.from_lengths(
            np.concatenate(pieces), lengths, starts if has_types else None
        )
        self._check_ids(batch, names)
        return EncodedPairs(batch, num_truncated)

    def _check_ids(self, batch: RaggedBatch, names: _Names) -> None:
        vocab_size = self._tokenizer.vocab_size
        if int(batch.token_ids.max()) < vocab_size:
            return
        at = int(np.argmax(batch.token_ids >= vocab_size))
        name = names.document(int(np.searchsorted(batch.cu_seqlens, at, side="right")) - 1)
        raise invalid(
            f"The pair of {name} holds a token with id {batch.token_ids[at]}, which the tokenizer "
            f"knows but the model does not: its vocabulary has {vocab_size} ids.",
            name,
        )


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of texts by their index in a part of the request."""

    fields: PairFields
    first_index: int

    def query(self, index: int) -> str:
        return self.fields.query.format(index + self.first_index)

    def document(self, index: int) -> str:
        return self.fields.document.format(index + self.first_index)


def _refuse_empty(batch: RaggedBatch, name: Callable[[int], str]) -> None:
    """Refuse a text of characters that the tokenizer drops."""
    if batch.lengths.min() < 1:
        raise blank_error(name(int(np.argmin(batch.lengths))))


def _sequences(batch: RaggedBatch) -> list[Int32Array]:
    return [batch.sequence(i) for i in range(batch.num_sequences)]


def _query_too_long(name: str, num_tokens: int, num_special: int, limit: int) -> Exception:
    return invalid(
        f"{name} has {num_tokens} tokens and the template of a pair {num_special}, the limit is "
        f"{limit}: no token of a document would fit. Only documents are cut; send a shorter query.",
        name,
    )


def _pair_too_long(name: str, num_tokens: int, limit: int) -> Exception:
    return invalid(
        f"The pair of {name} has {num_tokens} tokens, the limit is {limit} (query and special "
        "tokens included). Send a shorter document, or let it be cut.",
        name,
    )
