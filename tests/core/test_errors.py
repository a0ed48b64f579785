"""Errors carry code, field and retry hint, and name inputs by their place in the whole list."""

from __future__ import annotations

import pickle

import pytest

from hotbed.core.errors import ErrorCode, HotbedError, invalid, shift_input_index


@pytest.mark.parametrize(
    ("message", "shifted"),
    [
        ("input[3][7] is 5", "input[103][7] is 5"),
        ("values that are not finite for sequence 3", "values that are not finite for input[103]"),
        ("a sequence has 3 tokens", "a sequence has 3 tokens"),
    ],
)
def test_places_are_counted_from_the_requests_first_input(message, shifted):
    error = shift_input_index(invalid(message, "input[3]"), 100)
    assert (error.message, error.param) == (shifted, "input[103]")


def test_everything_else_of_the_error_stays():
    error = HotbedError(ErrorCode.OVERLOADED, "full", retry_after_s=2.5)
    moved = shift_input_index(error, 9)
    assert (moved.code, moved.message, moved.param, moved.retry_after_s) == (
        ErrorCode.OVERLOADED, "full", None, 2.5,
    )  # fmt: skip


def test_an_error_survives_pickling_between_processes():
    error = HotbedError(ErrorCode.TOO_LARGE, "too long", param="input", retry_after_s=1.5)
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.message, again.param, again.retry_after_s) == (
        ErrorCode.TOO_LARGE, "too long", "input", 1.5,
    )  # fmt: skip
