"""Configurations of GPU steps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hotbed.rose.buckets import step_config


@given(
    lengths=st.lists(st.integers(1, 3000), min_size=1, max_size=40),
    by_length=st.booleans(),
)
def test_a_configuration_holds_the_step(lengths: list[int], by_length: bool) -> None:
    total, longest = sum(lengths), max(lengths)
    config = step_config(total, len(lengths), longest, by_length=by_length)
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
