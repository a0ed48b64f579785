"""What late interaction does to texts: limits of queries and documents, queries filled up, tokens
without a vector. See `hotbed.checkpoint.output_records.MultiVectorHead`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hotbed.checkpoint.records import MultiVectorHead
from hotbed.core.errors import invalid
from hotbed.core.ragged import Int32Array, RaggedBatch
from hotbed.core.rows import RowSet
from hotbed.text.options import EncodeOptions
from hotbed.text.prompts import InputType
from hotbed.text.tokenizer import Tokenizer


def check_marks(tokenizer: Tokenizer, head: MultiVectorHead) -> None:
    """Refuse a tokenizer that does not make one token of a prefix that is one.

    A file that lower-cases texts before it looks for its added tokens never finds ``[Q] ``.

    Raises:
        HotbedError: INVALID_INPUT naming the prefix and what to change.
    """
    for text, token in head.marks:
        ids = tokenizer.encode([f"{text}a"], EncodeOptions(add_special_tokens=False)).batch
        if int(ids.token_ids[0]) != token:
            raise invalid(
                f"the model's prefix {text!r} is the token {token} of its vocabulary, but its"
                " tokenizer.json makes other tokens of the text. Put it among added_tokens there,"
                " with special true and normalized false",
                "added_tokens",
            )


def limited(
    options: EncodeOptions, head: MultiVectorHead, input_type: InputType | None, max_tokens: int
) -> EncodeOptions:
    """The options with the head's limit for such inputs, where they have none of their own.

    Args:
        options: of the request.
        head: of the model.
        input_type: of the texts; None: neither query nor document.
        max_tokens: the model's own limit.
    """
    limit = limited_tokens(head, input_type, max_tokens)
    if limit is None or options.max_tokens is not None:
        return options
    return replace(options, max_tokens=limit)


def limited_tokens(
    head: MultiVectorHead, input_type: InputType | None, max_tokens: int
) -> int | None:
    """The head's own limit for such inputs, `max_tokens` at most; None: it has none."""
    limits = {"query": head.query_length, "document": head.document_length}
    limit = limits.get(input_type or "")
    return None if limit is None else min(limit, max_tokens)


def filled_up(
    batch: RaggedBatch, head: MultiVectorHead, input_type: InputType | None
) -> RaggedBatch:
    """Queries with the head's token behind their end up to its length; other inputs as they are."""
    if head.expansion is None or input_type != "query":
        return batch
    token, length = head.expansion
    sequences: list[Int32Array] = []
    for index in range(batch.num_sequences):
        ids = batch.sequence(index)
        missing = max(0, length - len(ids))
        sequences.append(np.concatenate([ids, np.full(missing, token, dtype=np.int32)]))
    return RaggedBatch.from_sequences(sequences)


def without_skipped(
    vectors: RowSet, batch: RaggedBatch, head: MultiVectorHead, input_type: InputType | None
) -> RowSet:
    """The vectors of a batch without those of tokens that such inputs are not compared by.

    Args:
        vectors: a row a token, or all but a sequence's first.
        batch: the sequences.
        head: of the model.
        input_type: of the texts; another one than query counts as document.
    """
    kind = "query" if input_type == "query" else "document"
    if not head.skipped_tokens or kind not in head.skips_in:
        return vectors
    keep = ~np.isin(batch.token_ids, head.skipped_tokens)
    sequence = np.repeat(np.arange(batch.num_sequences), batch.lengths)
    if head.skips_first:
        has_vector = np.ones(batch.num_tokens, dtype=np.bool_)
        has_vector[batch.cu_seqlens[:-1]] = False
        keep, sequence = keep[has_vector], sequence[has_vector]
    counts = np.bincount(sequence[keep], minlength=batch.num_sequences).astype(np.int32)
    return RowSet(vectors.rows[keep], counts)
