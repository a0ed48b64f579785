"""Documents given as ordered chunks: one sequence a document, one span a chunk (late chunking).

    prefix | prompt | chunk [separator] chunk [separator] … chunk | suffix

The model reads the document as a whole, and the row of a chunk is the mean of its own tokens'
states alone. The separator is the model's (pplx-embed-context-v1: ``<|endoftext|>``), most have
none. Source: Günther et al. 2024, arXiv 2409.04701.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from hotbed.core.errors import HotbedError, invalid
from hotbed.core.ragged import Int32Array, RaggedBatch, Spans
from hotbed.text.options import EncodeOptions
from hotbed.text.tokenizer import Tokenizer

_BARE = EncodeOptions(add_special_tokens=False)
_INDEX = re.compile(r"\binput(?=\[)")


def encode_chunks(
    tokenizer: Tokenizer, documents: Sequence[Sequence[str]], *, prompt: str = ""
) -> RaggedBatch:
    """Tokenise documents; all or none. Nothing is truncated: a chunk that is cut off has no row.

    Args:
        tokenizer: of the model.
        documents: the chunks of each, in order; at least one document, each of at least one chunk.
        prompt: stands once before the first chunk of a document, in no row.

    Returns:
        A sequence a document, with a span a chunk: rows come document by document.

    Raises:
        HotbedError: INVALID_INPUT with ``input[document]`` or ``input[document][chunk]`` for a
            chunk that is empty or holds the separator, and for a document over the model's limit.
    """
    if not documents:
        raise invalid("input is empty: it must hold at least 1 document", "input")
    head = np.array(tokenizer.template.prefix, dtype=np.int32)
    if prompt:
        ids = tokenizer.encode([prompt], _BARE).batch.token_ids
        head = np.concatenate([head, ids])
    pieces: list[Int32Array] = []
    lengths, counts, bounds = [], [], []
    for index, chunks in enumerate(documents):
        made, spans = _document(tokenizer, chunks, index, head)
        pieces += made
        lengths.append(sum(len(piece) for piece in made))
        counts.append(len(spans))
        bounds += spans
    cu_spans = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=cu_spans[1:])
    batch = RaggedBatch.from_lengths(np.concatenate(pieces), np.array(lengths, dtype=np.int32))
    return RaggedBatch(
        batch.token_ids,
        batch.cu_seqlens,
        spans=Spans(np.array(bounds, dtype=np.int32), cu_spans),
    )


def _document(
    tokenizer: Tokenizer, chunks: Sequence[str], index: int, head: Int32Array
) -> tuple[list[Int32Array], list[tuple[int, int]]]:
    """(ids of the document in pieces, start and stop of each chunk)."""
    name = f"input[{index}]"
    if isinstance(chunks, str) or not chunks:
        raise invalid(f"{name} must be a list of at least 1 chunk of text", name)
    try:
        encoded = tokenizer.encode(chunks, _BARE).batch
    except HotbedError as error:
        raise _within(error, name) from None
    _refuse_separators(encoded, tokenizer.chunk_separator, name)
    separator = tokenizer.chunk_separator
    between = np.array([] if separator is None else [separator], dtype=np.int32)
    pieces, spans = [head], []
    at = len(head)
    for chunk in range(len(chunks)):
        if chunk:
            pieces.append(between)
            at += len(between)
        ids = encoded.sequence(chunk)
        pieces.append(ids)
        spans.append((at, at + len(ids)))
        at += len(ids)
    pieces.append(np.array(tokenizer.template.suffix, dtype=np.int32))
    at += len(pieces[-1])
    if at > tokenizer.max_tokens:
        raise invalid(
            f"{name} has {at} tokens in its {len(chunks)} chunks together, the limit is"
            f" {tokenizer.max_tokens} (special tokens and separators included). Send it as several"
            " documents.",
            name,
        )
    return pieces, spans


def _refuse_separators(encoded: RaggedBatch, separator: int | None, name: str) -> None:
    """A separator inside a chunk would read as the chunk's end."""
    if separator is None or not (found := encoded.token_ids == separator).any():
        return
    at = int(np.argmax(found))
    chunk = int(np.searchsorted(encoded.cu_seqlens, at, side="right")) - 1
    raise invalid(
        f"{name}[{chunk}] holds the token with id {separator}, which separates chunks",
        f"{name}[{chunk}]",
    )


def _within(error: HotbedError, name: str) -> HotbedError:
    """The error of a document's tokenising, with ``input[c]`` as ``input[d][c]``."""
    return HotbedError(
        error.code,
        _INDEX.sub(name, error.message),
        param=None if error.param is None else _INDEX.sub(name, error.param),
        retry_after_s=error.retry_after_s,
    )
