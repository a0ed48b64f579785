"""Texts sent by a client, checked before and after tokenising."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from hotbed.core.errors import ErrorCode, HotbedError, invalid
from hotbed.core.ragged import Int32Array, RaggedBatch

_SURROGATES = re.compile("[\ud800-\udfff]")


def input_name(index: int) -> str:
    """How errors name the texts of a request that are embedded."""
    return f"input[{index}]"


def checked_texts(
    texts: Sequence[str], *, max_chars: int, name: Callable[[int], str] = input_name
) -> list[str]:
    """The texts as they are, except that no lone surrogates are left.

    Args:
        texts: as the client sent them.
        max_chars: longest text.
        name: how errors name a text by its index.

    Raises:
        HotbedError: INVALID_INPUT with the name for one that is no string, empty or white space
            only; TOO_LARGE for one of more than `max_chars` characters.
    """
    if isinstance(texts, str):
        raise TypeError("texts must be a sequence of strings, got one string")
    if not texts:
        field = name(0).partition("[")[0]
        raise invalid(f"{field} is empty: at least one text is needed.", field)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise invalid(f"{name(i)} must be a string, got {type(text).__name__}.", name(i))
        if not text or text.isspace():
            raise blank_error(name(i))
        check_length(text, name(i), max_chars=max_chars)
    return [without_surrogates(text) for text in texts]


def check_length(text: str, name: str, *, max_chars: int) -> None:
    """Raises TOO_LARGE with the text's name for more than `max_chars` characters."""
    if len(text) > max_chars:
        raise HotbedError(
            ErrorCode.TOO_LARGE,
            f"{name} has {len(text)} characters, the limit is {max_chars}.",
            param=name,
        )


def without_surrogates(text: str) -> str:
    """Surrogate pairs joined, lone surrogates (half an emoji) replaced by U+FFFD.

    Rust's strings cannot hold them, so one would fail its whole batch.
    """
    if text.isascii() or not _SURROGATES.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def refuse_blank(batch: RaggedBatch, lengths: Int32Array, blank: Int32Array) -> None:
    """Refuse texts that gave no token of their own, such as a NUL that BERT's normaliser drops.

    Args:
        batch: S sequences.
        lengths: int32 [S], theirs.
        blank: what a text without a token gives: special tokens, and those of the prompt.

    Raises:
        HotbedError: INVALID_INPUT with ``input[i]``, the same as for white space.
    """
    for i in blank_indexes(batch, lengths, blank):
        raise blank_error(input_name(i))


def blank_indexes(batch: RaggedBatch, lengths: Int32Array, blank: Int32Array) -> Iterator[int]:
    """Indexes of the sequences that `refuse_blank` refuses, in order."""
    for i in np.flatnonzero((lengths == len(blank)) | (lengths == 0)).tolist():
        if lengths[i] == 0 or np.array_equal(batch.sequence(i), blank):
            yield i


def blank_error(name: str) -> HotbedError:
    """The error for a text without a token of its own."""
    return invalid(
        f"{name} holds no text: it is empty, white space only, or made of characters that "
        "the tokenizer drops.",
        name,
    )
