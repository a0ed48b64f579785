"""Perplexity's POST /v1/contextualizedembeddings: a row a chunk, read within its document.

https://docs.perplexity.ai/api-reference/contextualized-embeddings-post. Any model that pools by
mean can do it (late chunking); pplx-embed-context-v1 is made for it.
"""

from __future__ import annotations

import itertools
from typing import Annotated, Any, Literal

import msgspec
import orjson

from hotbed.core.errors import invalid
from hotbed.core.output import OutputSpec
from hotbed.ivy.answers import finish
from hotbed.ivy.body import BodyReader
from hotbed.ivy.dialects import perplexity
from hotbed.ivy.dialects.openai import Embedding, Usage
from hotbed.ivy.encode import ROW_DTYPES, Encoding, encode_rows
from hotbed.ivy.http import Reply
from hotbed.ivy.inputs import check_count
from hotbed.ivy.metrics import Metrics
from hotbed.ivy.registry import Registry
from hotbed.ivy.request import EmbedRequest
from hotbed.ivy.routes import Route
from hotbed.ivy.settings import IvySettings
from hotbed.ivy.work import Call

MAX_CHUNKS = 16_000


class ContextualBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/contextualizedembeddings."""

    input: Annotated[
        list[list[str]],
        msgspec.Meta(
            description="Documents, each a list of its chunks in order: up to 512 documents, "
            "16,000 chunks and 120,000 tokens in all, and what the model takes a document."
        ),
    ]
    model: Annotated[
        str | None, msgspec.Meta(description="A name from /v1/models; absent: the first model.")
    ] = None
    encoding_format: Annotated[
        Encoding | None,
        msgspec.Meta(
            description="As of /v1/embeddings; absent: base64_int8 for Perplexity's models, else "
            "float."
        ),
    ] = None
    dimensions: Annotated[
        int | None, msgspec.Meta(description="Keep this many leading dimensions.")
    ] = None
    input_type: Annotated[
        Literal["query", "document"] | None,
        msgspec.Meta(description="The model's prompt for such inputs, once before each document."),
    ] = None
    prompt_name: Annotated[
        str | None, msgspec.Meta(description="The model's prompt of this name, the same way.")
    ] = None
    normalize: Annotated[
        bool | None,
        msgspec.Meta(description="Divide by the L2 norm; absent: as the model's files say."),
    ] = None


class DocumentRows(msgspec.Struct, kw_only=True):
    """The rows of one document's chunks."""

    object: Literal["list"]
    index: int
    data: list[Embedding]


class ContextualAnswer(msgspec.Struct, kw_only=True):
    """Answer of POST /v1/contextualizedembeddings."""

    object: Literal["list"]
    data: list[DocumentRows]
    model: str
    usage: Usage


_read = BodyReader(ContextualBody, {"input": "must be a list of documents, each a list of texts"})


class ContextualRoute:
    """The route's handler."""

    def __init__(self, models: Registry, settings: IvySettings, metrics: Metrics) -> None:
        self._models = models
        self._metrics = metrics

    def routes(self) -> list[Route]:
        return [
            Route(
                path="/v1/contextualizedembeddings",
                aliases=("/contextualizedembeddings",),
                operation="createContextualizedEmbeddings",
                summary="Embed the chunks of documents in their context (Perplexity).",
                answer=self.post,
                body=ContextualBody,
                reply=ContextualAnswer,
            )
        ]

    async def post(self, call: Call) -> Reply:
        fields = _read(call.body)
        model = self._models.find(fields.model, task="embed")
        default: Encoding = "float"
        if model.quantizer == "pplx":
            default = perplexity.DEFAULT_ENCODING
        encoding = fields.encoding_format or default
        request = to_request(fields, encoding)
        call.parsed(self._metrics)
        result = await model.pipeline.run(request, call.caller)
        call.computed()
        rows = iter(await encode_rows(result.rows, encoding))
        data: list[dict[str, Any]] = [
            {
                "object": "list",
                "index": document,
                "data": [
                    {"object": "embedding", "index": chunk, "embedding": row}
                    for chunk, row in enumerate(itertools.islice(rows, len(chunks)))
                ],
            }
            for document, chunks in enumerate(fields.input)
        ]
        answer = {
            "object": "list",
            "data": data,
            "model": model.name,
            "usage": {
                "prompt_tokens": result.num_tokens,
                "total_tokens": result.num_tokens,
                "cost": perplexity.COST,
            },
        }
        return finish(call, result, orjson.dumps(answer), self._metrics)


def to_request(fields: ContextualBody, encoding: Encoding) -> EmbedRequest:
    """The internal request. Raises INVALID_INPUT naming the field."""
    if not fields.input:
        raise invalid("input is an empty list; it needs at least 1 document.", "input")
    check_count(len(fields.input), perplexity.MAX_INPUTS, "input")
    num_chunks = sum(map(len, fields.input))
    if num_chunks > MAX_CHUNKS:
        raise invalid(
            f"input has {num_chunks} chunks in all; the limit is {MAX_CHUNKS} a request.", "input"
        )
    if fields.dimensions is not None and fields.dimensions < 1:
        raise invalid("dimensions must be an integer of at least 1.", "dimensions")
    return EmbedRequest(
        texts=None,
        token_arrays=None,
        documents=fields.input,
        is_single=False,
        spec=OutputSpec(
            dimensions=fields.dimensions or 0,
            dtype=ROW_DTYPES[encoding],
            normalize=fields.normalize,
        ),
        prompt_name=fields.prompt_name,
        input_type=fields.input_type,
        max_request_tokens=perplexity.MAX_REQUEST_TOKENS,
    )
