"""The forms that inputs take in the dialects: texts, token ids, or objects that hold a text."""

from __future__ import annotations

from typing import cast

import msgspec

from hotbed.core.errors import invalid


class TextObject(msgspec.Struct, forbid_unknown_fields=True):
    """A text in an object of its own, as in Jina's dialect."""

    text: str


# One pass instead of a union of lists; `read_inputs` refuses mixtures afterwards.
Inputs = str | list[str | int | list[int] | TextObject]

INPUT_FORMS = (
    "a string, a list of strings, a list of token ids, or a list of lists of token ids (not mixed)"
)


def read_inputs(
    value: Inputs, *, max_inputs: int, field: str = "input"
) -> tuple[list[str] | None, list[list[int]] | None, bool]:
    """(texts, token arrays, whether it was one bare input); one of the first two is None.

    Args:
        value: as the body has it.
        max_inputs: most of them.
        field: its name in the body, for errors.

    Raises:
        HotbedError: INVALID_INPUT for an empty list, a mixture of kinds, or too many.
    """
    if isinstance(value, str):
        return [value], None, True
    kinds = set(map(type, value))
    if not kinds:
        raise invalid(f"{field} is an empty list; it needs at least 1 input.", field)
    if len(kinds) > 1:
        index = next(i for i, item in enumerate(value) if type(item) is not type(value[0]))
        raise invalid(
            f"{field} must be {INPUT_FORMS}; {field}[{index}] is of another kind than {field}[0].",
            f"{field}[{index}]",
        )
    kind = kinds.pop()
    if kind is int:
        return None, [cast("list[int]", value)], True
    check_count(len(value), max_inputs, field)
    if kind is str:
        return cast("list[str]", value), None, False
    if kind is TextObject:
        return [item.text for item in cast("list[TextObject]", value)], None, False
    return None, cast("list[list[int]]", value), False


def check_count(num_inputs: int, max_inputs: int, field: str) -> None:
    """Raises INVALID_INPUT with both numbers past the limit."""
    if num_inputs > max_inputs:
        raise invalid(
            f"{field} has {num_inputs} items; the limit is {max_inputs} a request.", field
        )
