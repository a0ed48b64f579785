"""JSON into structs: what the errors say."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.ivy.body import BodyReader


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    text: str


class Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    query: str
    items: list[str | Inner] | None = None
    side: Literal["left", "right"] | None = None
    limit: int | None = None
    share: float | None = None


read = BodyReader(Body, {"limit": "must be from 1 to 9"})


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        (b"{}", "query", "query is missing; it must be a string."),
        (b'{"query": 1}', "query", "query must be a string; query is int."),
        (b'{"query": "a", "x": 1}', "x", "Unknown field 'x'; known fields: query, items, side, "
         "limit, share."),
        (b'{"query": "a", "side": "secret"}', "side", 'side must be "left" or "right".'),
        (b'{"query": "a", "limit": "secret"}', "limit", "limit must be from 1 to 9; limit is str."),
        (b'{"query": "a", "share": []}', "share", "share must be a number; share is array."),
        (b'{"query": "a", "items": [1]}', "items[0]", "items must be a list of items that are each "
         "a string or an object with text; items[0] is int."),
        (b'{"query": "a", "items": [{}]}', "items[0]", "items[0] has no field 'text'."),
        (b'{"query": "a", "items": [{"text": "t", "y": 1}]}', "items[0]",
         "items[0] has an unknown field 'y'."),
        (b"[]", None, "The body must be a JSON object."),
        (b"", None, "The body is empty; send a JSON object."),
    ],
)  # fmt: skip
def test_an_error_names_the_field_and_what_it_must_be(body, param, message):
    with pytest.raises(HotbedError) as caught:
        read(body)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert (caught.value.param, caught.value.message) == (param, message)


def test_null_is_absent():
    body = b'{"query": "a", "items": null, "side": null, "limit": null}'
    assert read(body) == Body(query="a")
