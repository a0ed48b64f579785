"""Cuts a text that is too long into parts that fit, at words where it can.

The parts are substrings, so that a part's vector is the vector of that substring alone.
"""

from __future__ import annotations

from hotbed.text.options import EncodeOptions, Measured
from hotbed.text.tokenizer import Tokenizer

Span = tuple[int, int]
"""First character and last + 1."""
_SEGMENT_CHARS = 1_000_000
_SEARCH_BACK = 4
"""A word's beginning is looked for in the last quarter of a part."""


def chunk(
    tokenizer: Tokenizer, text: str, options: EncodeOptions
) -> tuple[list[Span], Measured | None]:
    """Spans that cover all of the text's tokens in order, and their sequences.

    Each sequence is within the limit. Without any token of its own the text has no span.
    """
    limit = tokenizer.max_tokens
    # What stands around every text: special tokens and the prompt.
    around = int(tokenizer.measure([""], options).lengths[0])
    spans: list[Span] = []
    for start, stop in _segments(text):
        room = limit - around
        while True:
            found = [(start + a, start + b) for a, b in _spans(tokenizer, text[start:stop], room)]
            if not found:
                break
            measured = tokenizer.measure([text[a:b] for a, b in found], options)
            # A part by itself can have more tokens than it had within the text.
            excess = int(measured.lengths.max()) - limit
            if excess <= 0:
                spans += [s for s, blank in zip(found, measured.blank, strict=True) if not blank]
                break
            if room == 1:
                raise AssertionError("a single token does not fit: this is a bug")
            room = max(1, room - excess)
    return spans, tokenizer.measure([text[a:b] for a, b in spans], options) if spans else None


def _segments(text: str) -> list[Span]:
    """Pieces short enough to be tokenised with offsets, cut at white space if there is any."""
    segments: list[Span] = []
    start = 0
    while len(text) - start > _SEGMENT_CHARS:
        stop = start + _SEGMENT_CHARS
        at = max(text.rfind(white, start + _SEGMENT_CHARS // 2, stop) for white in " \n\t")
        stop = at if at > start else stop
        segments.append((start, stop))
        start = stop
    return [*segments, (start, len(text))]


def _spans(tokenizer: Tokenizer, text: str, max_tokens: int) -> list[Span]:
    offsets = [(a, b) for a, b in tokenizer.reference.offsets(text) if b > a]
    spans: list[Span] = []
    first = 0
    while first < len(offsets):
        last = min(first + max_tokens, len(offsets))
        if last < len(offsets):
            for cut in range(last, last - max_tokens // _SEARCH_BACK, -1):
                a = offsets[cut][0]
                if text[a].isspace() or (a > 0 and text[a - 1].isspace()):
                    last = cut
                    break
        start, stop = offsets[first][0], offsets[last - 1][1]
        if spans:  # tokens of one character's bytes have the same offsets
            start = max(start, spans[-1][1])
        if stop > start:
            spans.append((start, stop))
        first = last
    return spans
