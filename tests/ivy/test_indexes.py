"""Errors name inputs by their place in the request."""

from __future__ import annotations

import pytest

from hotbed.core.errors import ErrorCode, HotbedError, invalid
from hotbed.ivy.indexes import name_bare_input, shift_index


@pytest.mark.parametrize(
    ("message", "shifted"),
    [
        ("input[3][7] is 5", "input[103][7] is 5"),
        ("values that are not finite for sequence 3", "values that are not finite for input[103]"),
        ("a sequence has 3 tokens", "a sequence has 3 tokens"),
    ],
)
def test_places_are_counted_from_the_requests_first_input(message, shifted):
    error = shift_index(invalid(message, "input[3]"), 100)
    assert (error.message, error.param) == (shifted, "input[103]")


def test_everything_else_of_the_error_stays():
    error = HotbedError(ErrorCode.OVERLOADED, "full", retry_after_s=2.5)
    moved = shift_index(error, 9)
    assert (moved.code, moved.message, moved.param, moved.retry_after_s) == (
        ErrorCode.OVERLOADED, "full", None, 2.5,
    )  # fmt: skip


def test_a_bare_input_is_not_called_a_list_item():
    error = name_bare_input(invalid("input[0][7] is 5", "input[0]"))
    assert (error.message, error.param) == ("input[7] is 5", "input")
    other = name_bare_input(invalid("dimensions is 5", "dimensions"))
    assert other.param == "dimensions"
