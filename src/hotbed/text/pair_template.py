"""The ids that a tokenizer puts around and between the two texts of a pair, found by asking it."""

from __future__ import annotations

from dataclasses import dataclass

from hotbed.core.errors import invalid
from hotbed.text.backend import HuggingFaceBackend

_PROBES = (("a", "z"), ("b c", "the 2 of them"), ("Zebra!", "(1) x y"), ("日本 é", "0" * 40))


@dataclass(frozen=True, slots=True)
class PairTemplate:
    """``prefix + first text + middle + second text + suffix``.

    Attributes:
        prefix: ids before the first text.
        middle: ids between the texts.
        suffix: ids after the second text.
        second_type_from: how many ids of `middle` have the first text's token type; None: all
            tokens of the pair have it.
    """

    prefix: tuple[int, ...]
    middle: tuple[int, ...]
    suffix: tuple[int, ...]
    second_type_from: int | None

    @property
    def num_special_tokens(self) -> int:
        return len(self.prefix) + len(self.middle) + len(self.suffix)


def find_pair_template(backend: HuggingFaceBackend, *, token_types: int) -> PairTemplate:
    """Template of a pair.

    Args:
        backend: the reference: the only one that knows pairs.
        token_types: 2 if the model tells the texts apart by token types, else 1.

    Raises:
        HotbedError: INVALID_INPUT if what the tokenizer adds is not the same for every pair, or its
            token types are neither all 0, nor first 0, then 1.
    """
    found = {_template(backend, first, second, token_types) for first, second in _PROBES}
    if len(found) != 1:
        raise invalid(
            "tokenizer.json: the post_processor must put the same tokens before, between and after"
            f" the texts of every pair; for {len(_PROBES)} probes it gave {len(found)} forms"
        )
    return found.pop()


def _template(
    backend: HuggingFaceBackend, first: str, second: str, token_types: int
) -> PairTemplate:
    ids, types, texts = backend.encode_pair(first, second)
    start_1, stop_1 = _span(texts, 0)
    start_2, stop_2 = _span(texts, 1)
    second_type_from = None
    if token_types > 1 and any(types):
        split = types.index(1) if 1 in types else -1
        if types != [0] * split + [1] * (len(types) - split) or not stop_1 <= split <= start_2:
            raise invalid(
                "tokenizer.json: the post_processor must give the first text of a pair the token"
                " type 0 and the second text the type 1, because the model has both"
            )
        second_type_from = split - stop_1
    return PairTemplate(
        prefix=tuple(ids[:start_1]),
        middle=tuple(ids[stop_1:start_2]),
        suffix=tuple(ids[stop_2:]),
        second_type_from=second_type_from,
    )


def _span(texts: list[int | None], which: int) -> tuple[int, int]:
    """(first, last + 1) of a text's tokens."""
    start = texts.index(which)
    return start, start + texts.count(which)
