"""The configurations a GPU step is padded to: few, so that each is captured once and replayed."""

from __future__ import annotations

from typing import NamedTuple

_MIN_LENGTH_CLASS = 64
# Steps with a shape of their own are set apart only where that pays
# (`hotbed.rose.attention.by_shape`), and for few lengths, so that graphs stay few.
_MIN_SHAPED_TOKENS = 4096
_UNIFORM_LENGTHS = range(128, 1025, 128)
_SHORT_CLASSES = (128, 256)


class StepConfig(NamedTuple):
    """What a captured graph is for.

    Attributes:
        num_tokens: rows, pad rows included.
        num_slots: sequences it has room for; one more slot holds the pad rows.
        max_seqlen: no sequence is longer.
        uniform: whether all `num_slots` sequences have `max_seqlen` tokens, without pad rows.
        num_spans: spans it has room for; 0 where sequences get the rows.
        keeps_states: whether the tokens' states are asked for; a graph then keeps their memory.
    """

    num_tokens: int
    num_slots: int
    max_seqlen: int
    uniform: bool = False
    num_spans: int = 0
    keeps_states: bool = False


def step_config(
    num_tokens: int,
    num_sequences: int,
    longest: int,
    *,
    by_length: bool,
    by_shape: bool = False,
    num_spans: int = 0,
) -> StepConfig:
    """The smallest configuration that holds such a step.

    Args:
        num_tokens: real tokens, at least 1.
        num_sequences: at least 1.
        longest: tokens of the longest sequence.
        by_length: whether the attention backend's grid depends on the longest sequence, so that
            it is worth a class of its own.
        by_shape: whether the backend treats two kinds of large steps differently: those of one
            length, which then get a configuration that they fit exactly, and those of short texts,
            which get a class of the longest sequence.
        num_spans: 0 for a batch without.

    Tokens go up in steps of 32 to 128, where a query's rows are most of its cost, of 64 to 1,024
    and of 256 above (128 where texts are no longer); sequences, lengths and spans by powers of two.
    """
    spans = _power_of_two(num_spans) if num_spans else 0
    granule = 32 if num_tokens <= 128 else 64 if num_tokens <= 1024 else 256
    length = max(_MIN_LENGTH_CLASS, _power_of_two(longest)) if by_length else None
    if by_shape and num_tokens >= _MIN_SHAPED_TOKENS:
        if num_tokens == num_sequences * longest and longest in _UNIFORM_LENGTHS:
            return StepConfig(num_tokens, num_sequences, longest, uniform=True, num_spans=spans)
        if longest <= _SHORT_CLASSES[-1]:
            length = next(n for n in _SHORT_CLASSES if longest <= n)
            granule = min(granule, length)
    padded = -(-num_tokens // granule) * granule
    if length is None:
        length = padded
    # The pad slot, too, is no longer than max_seqlen: it is shorter than the granule.
    slots = _power_of_two(num_sequences)
    return StepConfig(padded, slots, max(length, granule), num_spans=spans)


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
