"""Cohere's dialect: POST /v1/embed and /v2/embed.

https://docs.cohere.com/reference/embed. The one rule of truncation holds here too: without
`truncate` an input that is too long is refused, where Cohere's own service cuts it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
import orjson

from hotbed.core.errors import HotbedError, invalid
from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.ivy.answers import finish
from hotbed.ivy.body import BodyReader
from hotbed.ivy.dialects.handlers import Handlers
from hotbed.ivy.encode import ROW_DTYPES, Encoding, encode_rows
from hotbed.ivy.errors import HttpError, failure
from hotbed.ivy.http import Reply
from hotbed.ivy.inputs import check_count
from hotbed.ivy.request import EmbedRequest, EmbedResult
from hotbed.ivy.routes import Route
from hotbed.ivy.work import Call
from hotbed.text.prompts import InputType

EmbeddingType = Literal["float", "int8", "uint8", "binary", "ubinary", "base64"]
CohereInputType = Literal["search_document", "search_query", "classification", "clustering"]

_INPUT_TYPES: Mapping[CohereInputType, InputType] = {
    "search_document": "document",
    "search_query": "query",
    "classification": "classification",
    "clustering": "clustering",
}
_NAMES = {"input": "texts", "dimensions": "output_dimension"}


class Content(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A part of an input; only text."""

    type: Literal["text"]
    text: str


class ContentInput(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An input made of one part."""

    content: list[Content]


class CohereEmbedBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/embed and /v2/embed."""

    texts: Annotated[
        list[str] | None, msgspec.Meta(description="The texts, none of them empty.")
    ] = None
    inputs: Annotated[
        list[ContentInput] | None,
        msgspec.Meta(description="The same as objects, each with one part of type text."),
    ] = None
    model: Annotated[
        str | None, msgspec.Meta(description="A name from /v1/models; absent: the first model.")
    ] = None
    input_type: Annotated[
        CohereInputType | None,
        msgspec.Meta(description="Use the model's prompt for such inputs, if it has one."),
    ] = None
    embedding_types: Annotated[
        list[EmbeddingType] | None,
        msgspec.Meta(description="Forms of the rows; absent: float. Each type is computed anew."),
    ] = None
    output_dimension: Annotated[
        int | None,
        msgspec.Meta(description="Keep this many leading dimensions, then normalise."),
    ] = None
    max_tokens: Annotated[
        int | None,
        msgspec.Meta(description="A lower limit than the model's, special tokens included."),
    ] = None
    truncate: Annotated[
        Literal["NONE", "START", "END"] | None,
        msgspec.Meta(description="The end that is cut; absent or NONE: too long is an error."),
    ] = None
    priority: Annotated[int | None, msgspec.Meta(description="Accepted and not used.")] = None


class CohereEmbedAnswer(msgspec.Struct, kw_only=True):
    """Answer of POST /v2/embed, and of /v1/embed where embedding_types is given."""

    id: str
    response_type: Literal["embeddings_by_type", "embeddings_floats"]
    embeddings: dict[str, list[list[float] | str]] | list[list[float]]
    """By type; /v1/embed without embedding_types: a list of rows."""
    texts: list[str]
    meta: dict[str, Any]


class CohereError(msgspec.Struct, kw_only=True):
    """Answer of a request that failed."""

    message: str
    code: str
    param: str | None


_read = BodyReader(CohereEmbedBody)


class CohereRoutes(Handlers):
    """The routes' handlers."""

    def routes(self) -> list[Route]:
        return [
            Route(
                path=f"/v{version}/embed",
                operation=f"cohereEmbedV{version}",
                summary=f"Embed texts (Cohere, version {version}).",
                answer=answer,
                body=CohereEmbedBody,
                reply=CohereEmbedAnswer,
                error_reply=cohere_error_reply,
                error=CohereError,
            )
            for version, answer in ((1, self.embed_v1), (2, self.embed_v2))
        ]

    async def embed_v1(self, call: Call) -> Reply:
        return await self._embed(call, version=1)

    async def embed_v2(self, call: Call) -> Reply:
        return await self._embed(call, version=2)

    async def _embed(self, call: Call, *, version: int) -> Reply:
        fields = _read(call.body)
        model = self._models.find(fields.model, task="embed")
        types: list[EmbeddingType] = list(dict.fromkeys(fields.embedding_types or ["float"]))
        texts = _texts(fields, max_inputs=self._settings.max_inputs)
        dtypes = list(dict.fromkeys(ROW_DTYPES[kind] for kind in types))
        call.parsed(self._metrics)

        async def run(dtype: OutputDtype) -> EmbedResult:
            request = _request(fields, texts, dtype, auto_truncate=self._settings.auto_truncate)
            return await model.pipeline.run(request, call.caller)

        # One after the other: side by side a request could fill the gateway's queue by itself and
        # be refused for that.
        results = {dtype: await run(dtype) for dtype in dtypes}
        call.computed()
        rows: dict[Encoding, Any] = {
            kind: await encode_rows(results[ROW_DTYPES[kind]].rows, kind) for kind in types
        }
        is_bare = version == 1 and fields.embedding_types is None
        num_tokens = sum(result.num_tokens for result in results.values())
        answer = {
            "id": str(uuid.uuid4()),
            "response_type": "embeddings_floats" if is_bare else "embeddings_by_type",
            "embeddings": rows["float"] if is_bare else rows,
            "texts": texts,
            "meta": meta(version, num_tokens),
        }
        return finish(call, results[dtypes[0]], orjson.dumps(answer), self._metrics)


def meta(version: int, num_tokens: int) -> dict[str, Any]:
    """What every answer says of the API and of the tokens that were computed."""
    return {
        "api_version": {"version": str(version)},
        "billed_units": {"input_tokens": num_tokens},
        "tokens": {"input_tokens": num_tokens},
    }


def _texts(fields: CohereEmbedBody, *, max_inputs: int) -> list[str]:
    if (fields.texts is None) == (fields.inputs is None):
        raise invalid("Give texts or inputs, one of the two.", "texts")
    if fields.texts is not None:
        texts, field = fields.texts, "texts"
    else:
        assert fields.inputs is not None
        field = "inputs"
        for index, item in enumerate(fields.inputs):
            if len(item.content) != 1:
                raise invalid(
                    f"inputs[{index}].content must have exactly one part.", f"inputs[{index}]"
                )
        texts = [item.content[0].text for item in fields.inputs]
    if not texts:
        raise invalid(f"{field} is an empty list; it needs at least 1 text.", field)
    check_count(len(texts), max_inputs, field)
    return texts


def _request(
    fields: CohereEmbedBody, texts: list[str], dtype: OutputDtype, *, auto_truncate: bool
) -> EmbedRequest:
    if fields.output_dimension is not None and fields.output_dimension < 1:
        raise invalid("output_dimension must be an integer of at least 1.", "output_dimension")
    return EmbedRequest(
        texts=texts,
        token_arrays=None,
        is_single=False,
        spec=OutputSpec(dimensions=fields.output_dimension or 0, dtype=dtype),
        input_type=None if fields.input_type is None else _INPUT_TYPES[fields.input_type],
        truncate=auto_truncate if fields.truncate is None else fields.truncate != "NONE",
        truncation_side="left" if fields.truncate == "START" else "right",
        max_tokens=fields.max_tokens,
        names=_NAMES if fields.inputs is None else {**_NAMES, "input": "inputs"},
    )


def cohere_error_reply(error: HotbedError | HttpError) -> Reply:
    """The answer to a request that failed."""
    failed = failure(error)
    body = CohereError(message=failed.message, code=failed.code, param=failed.param)
    return Reply(failed.status, msgspec.json.encode(body), failed.headers)
