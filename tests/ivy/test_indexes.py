"""Errors name inputs as the client wrote them."""

from __future__ import annotations

from hotbed.core.errors import invalid
from hotbed.ivy.indexes import name_bare_input


def test_a_bare_input_is_not_called_a_list_item():
    error = name_bare_input(invalid("input[0][7] is 5", "input[0]"))
    assert (error.message, error.param) == ("input[7] is 5", "input")
    other = name_bare_input(invalid("dimensions is 5", "dimensions"))
    assert other.param == "dimensions"
