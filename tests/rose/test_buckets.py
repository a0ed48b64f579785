"""Configurations of GPU steps."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hotbed.rose import buckets
from hotbed.rose.attention import by_shape
from hotbed.rose.buckets import StepConfig, step_config


@given(
    lengths=st.lists(st.integers(1, 3000), min_size=1, max_size=40),
    by_length=st.booleans(),
    by_shape=st.booleans(),
)
@example(lengths=[512] * 9, by_length=False, by_shape=True)
@example(lengths=[16] * 257, by_length=False, by_shape=True)
@example(lengths=[127] * 33, by_length=True, by_shape=True)
def test_a_configuration_holds_the_step(
    lengths: list[int], by_length: bool, by_shape: bool
) -> None:
    total, longest = sum(lengths), max(lengths)
    config = step_config(total, len(lengths), longest, by_length=by_length, by_shape=by_shape)
    assert config.num_tokens >= total
    assert config.num_slots >= len(lengths)
    assert config.max_seqlen >= longest
    assert config.max_seqlen >= config.num_tokens - total, "the pad slot is a sequence too"


def test_token_buckets_are_32_then_64_up_to_1024_and_256_above() -> None:
    def padded(n: int) -> int:
        return step_config(n, 1, n, by_length=False).num_tokens

    assert [padded(n) for n in (1, 32, 33, 128, 129, 1000, 1024, 1025, 1280)] == [
        32, 32, 64, 128, 192, 1024, 1024, 1280, 1280,
    ]  # fmt: skip


def test_without_length_classes_equal_totals_share_a_configuration() -> None:
    one = step_config(1000, 8, 900, by_length=False)
    assert one == step_config(1000, 8, 125, by_length=False)
    assert one != step_config(1000, 9, 125, by_length=False)
    assert step_config(1000, 8, 900, by_length=True) != step_config(1000, 8, 125, by_length=True)


def test_a_step_of_one_length_has_a_configuration_that_it_fits_exactly() -> None:
    config = step_config(9 * 512, 9, 512, by_length=False, by_shape=True)
    assert config == StepConfig(9 * 512, 9, 512, uniform=True)
    # Not the ragged step with the same numbers.
    assert config != step_config(9 * 512, 9, 512, by_length=True)


@pytest.mark.parametrize(
    "lengths", [[512] * 8 + [511], [512] * 7, [500] * 16, [320] * 16, [512] * 9 + [1], [1152] * 4]
)
def test_other_steps_are_ragged(lengths: list[int]) -> None:
    total, longest = sum(lengths), max(lengths)
    ragged = step_config(total, len(lengths), longest, by_length=False)
    assert step_config(total, len(lengths), longest, by_length=False, by_shape=True) == ragged
    assert not ragged.uniform


@pytest.mark.parametrize("by_shape", [False, True])
@pytest.mark.parametrize("lengths", [[512] * 9, [100] * 50, [7, 3]])
def test_steps_with_spans_have_configurations_with_room_for_them(
    lengths: list[int], by_shape: bool
) -> None:
    sizes = sum(lengths), len(lengths), max(lengths)
    plain = step_config(*sizes, by_length=False, by_shape=by_shape)
    chunked = step_config(*sizes, by_length=False, by_shape=by_shape, num_spans=17)
    assert plain.num_spans == 0
    assert chunked == plain._replace(num_spans=32)


def test_every_length_set_apart_is_one_that_cudnn_is_taken_for() -> None:
    made = set()
    for length in range(1, 4097):
        count = -(-4096 // length)
        if step_config(count * length, count, length, by_length=False, by_shape=True).uniform:
            made.add(length)
    assert made == {n for n in by_shape.DENSE_LENGTHS if n % 128 == 0}


@pytest.mark.parametrize(
    ("num_tokens", "longest", "padded", "max_seqlen"),
    [
        (4096, 128, 4096, 128),
        (4097, 20, 4224, 128),
        (4097, 129, 4352, 256),
        (4097, 256, 4352, 256),
        (4097, 257, 4352, 4352),
        (4095, 64, 4096, 4096),
    ],
)
def test_large_steps_of_short_texts_have_classes_of_their_own(
    num_tokens: int, longest: int, padded: int, max_seqlen: int
) -> None:
    config = step_config(num_tokens, 300, longest, by_length=False, by_shape=True)
    assert config == StepConfig(padded, 512, max_seqlen)


def test_attention_knows_the_classes_of_short_texts() -> None:
    assert tuple(by_shape.max_short_length(h) for h in (128, 64)) == buckets._SHORT_CLASSES
    assert buckets._MIN_SHAPED_TOKENS == by_shape.MIN_SHORT_TOKENS
