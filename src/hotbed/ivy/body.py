"""A JSON body into a struct, with errors that name the field and hold no text of the request.

Known fields only: an unknown one is refused by name, because a misspelt option that is silently
dropped gives wrong vectors. null for an optional field means absent. Of a key given twice the last
one counts, as in most JSON readers.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec
from msgspec import inspect

from hotbed.core.errors import ErrorCode, HotbedError, invalid

T = TypeVar("T", bound=msgspec.Struct)

# Larger bodies are decoded with the garbage collector paused: it walks the lists that are being
# made again and again (5 MB of empty lists: 500 ms of the event loop with it, 60 without,
# 2026-11-30).
_LARGE_BYTES = 64 * 1024
# Escapes of surrogates in a body that is not valid JSON as it stands: to mend more of them would
# hold up the event loop (0.2 us each).
_MAX_MENDED = 50_000
# Commas of a body beside those between token ids.
_SPARE_VALUES = 100_000

# What msgspec's messages hold of use: the path, the type that was there, a field's name.
_PATH = re.compile(r" - at `\$\.([^`]+)`$")
_GOT = re.compile(r"got `([a-z]+)`")
_UNKNOWN = re.compile(r"unknown field `(.*?)`(?: - at `|$)", re.DOTALL)
_MISSING = re.compile(r"missing required field `([^`]*)`")
MAX_ECHOED_NAME = 64

# An escape of any kind, so that an escaped backslash before "u" is not taken for one; of length 6
# for a surrogate that stands alone, longer for a pair.
_ESCAPE = re.compile(
    rb"\\(?:u(?:[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    rb"|[dD][c-fC-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class BodyReader(Generic[T]):
    """Reads bodies of one struct.

    Args:
        struct: forbids unknown fields.
        expected: what a field must be, such as ``must be a string``; for a field without an entry
            the words come from its type.
    """

    def __init__(self, struct: type[T], expected: Mapping[str, str] | None = None) -> None:
        self._decoder = msgspec.json.Decoder(struct)
        info = inspect.type_info(struct)
        assert isinstance(info, inspect.StructType)
        words = {f.encode_name: f"must be {_in_words(f.type)}" for f in info.fields}
        self._expected = {**words, **(expected or {})}

    def __call__(self, body: bytes) -> T:
        """The struct. A lone UTF-16 surrogate in an escape (half an emoji) becomes U+FFFD.

        Raises:
            HotbedError: INVALID_INPUT naming the field.
        """
        try:
            return self._decode(body)
        except msgspec.ValidationError as error:
            raise self._wrong_field(str(error)) from None
        except RecursionError:
            raise invalid("The body is nested too deeply.") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if _SURROGATE.search(body):
                if body.count(b"\\ud") + body.count(b"\\uD") > _MAX_MENDED:
                    raise invalid(
                        "The body is not valid JSON: among its many escapes of surrogates "
                        "(\\\\ud800 to \\\\udfff) is half a pair. Send UTF-8."
                    ) from None
                repaired = _ESCAPE.sub(_replace_lone_surrogate, body)
                if repaired != body:
                    return self(repaired)
            raise invalid(_why_not_json(body, str(error))) from None

    def _decode(self, body: bytes) -> T:
        if len(body) < _LARGE_BYTES or not gc.isenabled():
            return self._decoder.decode(body)
        gc.disable()
        try:
            return self._decoder.decode(body)
        finally:
            gc.enable()

    def _wrong_field(self, message: str) -> HotbedError:
        path = _PATH.search(message)
        unknown, missing = _UNKNOWN.search(message), _MISSING.search(message)
        if path is None:
            if unknown is not None:
                name = unknown[1][:MAX_ECHOED_NAME]
                known = ", ".join(self._expected)
                return invalid(f"Unknown field {name!r}; known fields: {known}.", name)
            if missing is not None:
                return invalid(
                    f"{missing[1]} is missing; it {self._expected[missing[1]]}.", missing[1]
                )
            return invalid("The body must be a JSON object.")
        where = path[1][:MAX_ECHOED_NAME]
        if unknown is not None:
            name = unknown[1][:MAX_ECHOED_NAME]
            return invalid(f"{where} has an unknown field {name!r}.", where)
        if missing is not None:
            return invalid(f"{where} has no field {missing[1]!r}.", where)
        field = re.split(r"[.\[]", where, maxsplit=1)[0]
        # Of msgspec's words only the type: those on a wrong choice quote the value.
        got = _GOT.search(message)
        but = f"; {where} is {got[1]}" if got is not None else ""
        return invalid(f"{field} {self._expected[field]}{but}.", where)


def check_values(body: bytes, max_request_tokens: int) -> None:
    """Refuse what would be decoded into more values than a request can have tokens.

    Millions of values in a few MB would hold up the event loop while they are made. Counted are
    commas: a number or a list has one, and a comma in a text is a token, nearly always.

    Raises:
        HotbedError: TOO_LARGE.
    """
    limit = max_request_tokens + _SPARE_VALUES
    if len(body) > limit and (num_commas := body.count(b",")) > limit:
        raise HotbedError(
            ErrorCode.TOO_LARGE,
            f"The body has {num_commas} commas, so more values than a request may have: the limit "
            f"is {limit} (max_request_tokens and {_SPARE_VALUES}).",
        )


def _in_words(kind: inspect.Type) -> str:
    """A type in words, for a person."""
    if isinstance(kind, inspect.UnionType):
        words = [_in_words(t) for t in kind.types if not isinstance(t, inspect.NoneType)]
        return " or ".join(words)
    if isinstance(kind, inspect.Metadata):
        return _in_words(kind.type)
    if isinstance(kind, inspect.LiteralType):
        return " or ".join(f'"{value}"' for value in kind.values)
    if isinstance(kind, inspect.ListType):
        return f"a list of items that are each {_in_words(kind.item_type)}"
    if isinstance(kind, inspect.StructType):
        return f"an object with {', '.join(f.encode_name for f in kind.fields)}"
    return _WORDS.get(type(kind), "of another type")


_WORDS: dict[type[inspect.Type], str] = {
    inspect.StrType: "a string",
    inspect.IntType: "an integer",
    inspect.FloatType: "a number",
    inspect.BoolType: "true or false",
    inspect.DictType: "an object",
    inspect.AnyType: "any value",
}


def _replace_lone_surrogate(match: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if len(match[0]) == 6 else match[0]


def _why_not_json(body: bytes, reason: str) -> str:
    if not body.strip():
        return "The body is empty; send a JSON object."
    if body.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return "The body starts with a byte order mark; send plain UTF-8 without one."
    return f"The body is not valid JSON: {reason}."
