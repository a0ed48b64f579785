"""The configurations a GPU step is padded to: few, so that each is captured once and replayed."""

from __future__ import annotations

from typing import NamedTuple

_MIN_LENGTH_CLASS = 64


class StepConfig(NamedTuple):
    """What a captured graph is for.

    Attributes:
        num_tokens: rows, pad rows included.
        num_slots: sequences it has room for; one more slot holds the pad rows.
        max_seqlen: no sequence is longer.
        num_spans: spans it has room for; 0 where sequences get the rows.
    """

    num_tokens: int
    num_slots: int
    max_seqlen: int
    num_spans: int = 0


def step_config(
    num_tokens: int, num_sequences: int, longest: int, *, by_length: bool, num_spans: int = 0
) -> StepConfig:
    """The smallest configuration that holds such a step.

    Args:
        num_tokens: real tokens, at least 1.
        num_sequences: at least 1.
        longest: tokens of the longest sequence.
        by_length: whether the attention backend's grid depends on the longest sequence, so that
            it is worth a class of its own.
        num_spans: 0 for a batch without.

    Tokens go up in steps of 32 to 128, where a query's rows are most of its cost, of 64 to 1,024
    and of 256 above; sequences, lengths and spans by powers of two.
    """
    granule = 32 if num_tokens <= 128 else 64 if num_tokens <= 1024 else 256
    padded = -(-num_tokens // granule) * granule
    length = max(_MIN_LENGTH_CLASS, _power_of_two(longest)) if by_length else padded
    # The pad slot, too, is no longer than max_seqlen: it is shorter than the granule.
    spans = _power_of_two(num_spans) if num_spans else 0
    return StepConfig(padded, _power_of_two(num_sequences), max(length, granule), spans)


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
