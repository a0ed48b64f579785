"""Errors name inputs as the client wrote them."""

from __future__ import annotations

from hotbed.core.errors import invalid
from hotbed.ivy.indexes import name_fields


def test_a_bare_input_is_not_called_a_list_item():
    error = name_fields(invalid("input[0][7] is 5", "input[0]"), {}, is_single=True)
    assert (error.message, error.param) == ("input[7] is 5", "input")
    other = name_fields(invalid("dimensions is 5", "dimensions"), {}, is_single=True)
    assert other.param == "dimensions"


def test_a_dialects_own_word_for_input_is_used():
    error = name_fields(
        invalid("input[3] is long; input_type is not", "input[3]"), {"input": "texts"}
    )
    assert (error.message, error.param) == ("texts[3] is long; input_type is not", "texts[3]")
