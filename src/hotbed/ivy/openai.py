"""The OpenAI dialect: POST /v1/embeddings in, and out.

Known fields only: an unknown one is refused by name, as OpenAI does, because a misspelt option
that is silently dropped gives wrong vectors. null for an optional field means absent. Of a key
given twice the last one counts, as in most JSON readers.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Literal, cast

import msgspec
import orjson

from hotbed.core.errors import ErrorCode, HotbedError, invalid
from hotbed.core.output import OutputSpec
from hotbed.ivy.encode import base64_rows, float_rows
from hotbed.ivy.request import EmbedRequest, EmbedResult

Encoding = Literal["float", "base64"]

# One pass instead of a four-way union of lists; `_inputs` refuses mixtures afterwards.
_Input = str | list[str | int | list[int]]


class EmbeddingsBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/embeddings."""

    input: Annotated[
        _Input,
        msgspec.Meta(
            description="One text, a list of texts, one list of token ids, or a list of lists of "
            "token ids (of this model's tokenizer). Up to 2,048 inputs, none of them empty."
        ),
    ]
    model: Annotated[
        str | None, msgspec.Meta(description="A name from /v1/models; absent: the served model.")
    ] = None
    encoding_format: Annotated[
        Encoding | None,
        msgspec.Meta(
            description="float (the default): lists of numbers. base64: strings of little-endian "
            "float32, about 20 times cheaper."
        ),
    ] = None
    dimensions: Annotated[
        int | None,
        msgspec.Meta(
            description="Keep this many leading dimensions (Matryoshka), then normalise. From 1 "
            "to the model's own number; absent: all."
        ),
    ] = None
    user: Annotated[str | None, msgspec.Meta(description="Accepted and not used.")] = None
    input_type: Annotated[
        Literal["query", "document"] | None,
        msgspec.Meta(description="Use the model's prompt for queries or documents. Texts only."),
    ] = None
    prompt_name: Annotated[
        str | None,
        msgspec.Meta(description="Use the model's prompt of this name. Texts only."),
    ] = None
    truncate: Annotated[
        bool | None,
        msgspec.Meta(
            description="Cut inputs that are too long; absent or false: they are refused."
        ),
    ] = None
    truncation_side: Annotated[
        Literal["left", "right"] | None,
        msgspec.Meta(description="The end that is cut; absent: right."),
    ] = None
    normalize: Annotated[
        bool | None,
        msgspec.Meta(description="Divide by the L2 norm; absent: as the model's files say."),
    ] = None


class Embedding(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One row of the answer."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Tokens that were computed, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Answer of POST /v1/embeddings."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


FIELDS = EmbeddingsBody.__struct_fields__
_decoder = msgspec.json.Decoder(EmbeddingsBody)

_INPUT_FORMS = (
    "a string, a list of strings, a list of token ids, or a list of lists of token ids (not mixed)"
)
_EXPECTED = {
    "input": f"must be {_INPUT_FORMS}",
    "model": "must be a string",
    "encoding_format": 'must be "float" or "base64"',
    "dimensions": "must be an integer of at least 1",
    "user": "must be a string",
    "input_type": 'must be "query" or "document"',
    "prompt_name": "must be a string",
    "truncate": "must be true or false",
    "truncation_side": 'must be "left" or "right"',
    "normalize": "must be true or false",
}

# What msgspec's messages hold of use: the path, and the unknown field's name.
_PATH = re.compile(r" - at `\$\.([^`]+)`$")
_UNKNOWN = re.compile(r"unknown field `(.*)`", re.DOTALL)
_MAX_ECHOED_NAME = 64

# An escape of any kind, so that an escaped backslash before "u" is not taken for one; of length 6
# for a surrogate that stands alone, longer for a pair.
_ESCAPE = re.compile(
    rb"\\(?:u(?:[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    rb"|[dD][c-fC-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def decode_request(
    body: bytes, *, names: Collection[str], max_inputs: int
) -> tuple[EmbedRequest, Encoding]:
    """The internal request of a body, and how its answer shall be written.

    A lone UTF-16 surrogate in an escape (an emoji cut in half by the client) becomes U+FFFD.

    Raises:
        HotbedError: INVALID_INPUT naming the field; MODEL_NOT_FOUND.
    """
    fields = _decode(body)
    if fields.model is not None and fields.model not in names:
        raise model_not_found(fields.model, names)
    if fields.dimensions is not None and fields.dimensions < 1:
        raise invalid(f"dimensions {_EXPECTED['dimensions']}.", "dimensions")
    texts, token_arrays, is_single = _inputs(fields.input, max_inputs)
    if texts is None:
        for name in ("input_type", "prompt_name"):
            if getattr(fields, name) is not None:
                raise invalid(
                    f"{name} puts a prompt before texts; it can't be used with token ids.", name
                )
    request = EmbedRequest(
        texts=texts,
        token_arrays=token_arrays,
        is_single=is_single,
        spec=OutputSpec(dimensions=fields.dimensions or 0, normalize=fields.normalize),
        prompt_name=fields.prompt_name,
        input_type=fields.input_type,
        truncate=bool(fields.truncate),
        truncation_side=fields.truncation_side or "right",
    )
    return request, fields.encoding_format or "float"


async def encode_answer(result: EmbedResult, encoding: Encoding, model: str) -> bytes:
    """The answer's body."""
    rows: list[str] | list[orjson.Fragment]
    if encoding == "base64":
        rows = base64_rows(result.rows)
    else:
        rows = await float_rows(result.rows)
    return orjson.dumps(
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": row}
                for index, row in enumerate(rows)
            ],
            "model": model,
            "usage": {"prompt_tokens": result.num_tokens, "total_tokens": result.num_tokens},
        }
    )


def model_not_found(name: str, names: Collection[str]) -> HotbedError:
    """The error for a model name that is not served."""
    return HotbedError(
        ErrorCode.MODEL_NOT_FOUND,
        f"The model {name[:_MAX_ECHOED_NAME]!r} is not served here. Served: {', '.join(names)}.",
        param="model",
    )


def _decode(body: bytes) -> EmbeddingsBody:
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error)) from None
    except RecursionError:
        raise invalid("The body is nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if _SURROGATE.search(body):
            repaired = _ESCAPE.sub(_replace_lone_surrogate, body)
            if repaired != body:
                return _decode(repaired)
        raise invalid(_why_not_json(body, str(error))) from None


def _replace_lone_surrogate(match: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if len(match[0]) == 6 else match[0]


def _why_not_json(body: bytes, reason: str) -> str:
    if not body.strip():
        return 'The body is empty; send a JSON object such as {"input": "text"}.'
    if body.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return "The body starts with a byte order mark; send plain UTF-8 without one."
    return f"The body is not valid JSON: {reason}."


def _wrong_field(message: str) -> HotbedError:
    unknown = _UNKNOWN.search(message)
    if unknown is not None:
        name = unknown[1][:_MAX_ECHOED_NAME]
        return invalid(f"Unknown field {name!r}; known fields: {', '.join(FIELDS)}.", name)
    if "missing required field" in message:
        return invalid(f"input is missing; it {_EXPECTED['input']}.", "input")
    path = _PATH.search(message)
    if path is None:
        return invalid("The body must be a JSON object.")
    field = re.split(r"[.\[]", path[1], maxsplit=1)[0]
    if field == "input":
        got = message[: path.start()].rpartition("got ")[2].strip("`")
        return invalid(f"input {_EXPECTED['input']}; {path[1]} is {got}.", path[1])
    return invalid(f"{field} {_EXPECTED[field]}.", field)


def _inputs(
    value: _Input, max_inputs: int
) -> tuple[list[str] | None, list[list[int]] | None, bool]:
    """(texts, token arrays, whether it was one bare input)."""
    if isinstance(value, str):
        return [value], None, True
    kinds = set(map(type, value))
    if not kinds:
        raise invalid("input is an empty list; it needs at least 1 input.", "input")
    if len(kinds) > 1:
        index = next(i for i, item in enumerate(value) if type(item) is not type(value[0]))
        raise invalid(
            f"input {_EXPECTED['input']}; input[{index}] is of another kind than input[0].",
            f"input[{index}]",
        )
    kind = kinds.pop()
    if kind is int:
        return None, [cast("list[int]", value)], True
    if len(value) > max_inputs:
        raise invalid(
            f"input has {len(value)} items; the limit is {max_inputs} a request.", "input"
        )
    if kind is str:
        return cast("list[str]", value), None, False
    return None, cast("list[list[int]]", value), False
