"""Jina's POST /v1/multi-vector, and Hotbed's own POST /v1/outputs: several outputs of one pass.

https://api.jina.ai/redoc. The second one is for models such as bge-m3 that give dense, sparse and
multi-vector outputs together; no other API has a form for it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import orjson

from hotbed.core.errors import invalid
from hotbed.core.output import OutputKind, OutputSpec
from hotbed.ivy.answers import finish
from hotbed.ivy.body import BodyReader
from hotbed.ivy.dialects.handlers import Handlers
from hotbed.ivy.dialects.shared import Usage
from hotbed.ivy.encode import number_rows, vector_lists, vector_strings
from hotbed.ivy.http import Reply
from hotbed.ivy.inputs import INPUT_FORMS, Inputs, read_inputs
from hotbed.ivy.outputs import OutputsResult
from hotbed.ivy.registry import ModelService
from hotbed.ivy.request import EmbedRequest
from hotbed.ivy.routes import Route
from hotbed.ivy.work import Call

_InputField = Annotated[
    Inputs,
    msgspec.Meta(description="One text, a list of texts, token ids, or lists of token ids."),
]
_Model = Annotated[
    str | None, msgspec.Meta(description="A name from /v1/models; absent: the first model.")
]
_InputType = Annotated[
    Literal["query", "document"] | None,
    msgspec.Meta(description="What the texts are: models may read the two differently."),
]
_Dimensions = Annotated[
    int | None, msgspec.Meta(description="Keep this many leading dimensions of every vector.")
]
_Truncate = Annotated[
    bool | None, msgspec.Meta(description="Cut what is too long; absent: it is an error.")
]


class MultiVectorBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/multi-vector."""

    input: _InputField
    model: _Model = None
    input_type: _InputType = None
    dimensions: _Dimensions = None
    embedding_type: Annotated[
        Literal["float", "base64"] | None,
        msgspec.Meta(description="Numbers (the default) or float32 in base64, row after row."),
    ] = None
    truncate: _Truncate = None


class MultiVector(msgspec.Struct, kw_only=True):
    """Vectors of one input."""

    object: Literal["embeddings"]
    index: int
    embeddings: list[list[float]] | str


class MultiVectorAnswer(msgspec.Struct, kw_only=True):
    """Answer of POST /v1/multi-vector."""

    object: Literal["list"]
    model: str
    data: list[MultiVector]
    usage: Usage


class OutputsBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/outputs."""

    input: _InputField
    outputs: Annotated[
        list[Literal["dense", "sparse", "multi_vector", "tokens"]],
        msgspec.Meta(description="Which, each once, of those that the model has."),
    ]
    model: _Model = None
    input_type: _InputType = None
    dimensions: _Dimensions = None
    normalize: Annotated[
        bool | None,
        msgspec.Meta(description="Of every vector; absent: what belongs to each output."),
    ] = None
    truncate: _Truncate = None


class SparseOutput(msgspec.Struct, kw_only=True):
    """Weights of token ids, ids rising."""

    indices: list[int]
    values: list[float]


class InputOutputs(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The outputs of one input; those that were not asked for are absent."""

    index: int
    dense: list[float] | None = None
    sparse: SparseOutput | None = None
    multi_vector: list[list[float]] | None = None
    tokens: list[list[float]] | None = None


class OutputsAnswer(msgspec.Struct, kw_only=True):
    """Answer of POST /v1/outputs."""

    object: Literal["list"]
    model: str
    data: list[InputOutputs]
    usage: Usage


_FORMS = {"input": f"must be {INPUT_FORMS}"}
_read_multi_vector = BodyReader(MultiVectorBody, _FORMS)
_read_outputs = BodyReader(OutputsBody, _FORMS)


class OutputRoutes(Handlers):
    """The routes' handlers."""

    def routes(self) -> list[Route]:
        return [
            Route(
                path="/v1/multi-vector",
                aliases=("/multi-vector",),
                operation="multiVector",
                summary="Vectors for late interaction (Jina).",
                answer=self.multi_vector,
                body=MultiVectorBody,
                reply=MultiVectorAnswer,
            ),
            Route(
                path="/v1/outputs",
                aliases=("/outputs",),
                operation="outputs",
                summary="Several outputs of one pass: dense, sparse, multi-vector, tokens.",
                answer=self.outputs,
                body=OutputsBody,
                reply=OutputsAnswer,
            ),
        ]

    async def multi_vector(self, call: Call) -> Reply:
        fields = _read_multi_vector(call.body)
        spec = OutputSpec(_checked(fields.dimensions), kind="multi_vector")
        model, result = await self._run(call, fields, spec)
        rows = result.sets[0]
        is_text = fields.embedding_type == "base64"
        vectors: list[Any] = vector_strings(rows) if is_text else await vector_lists(rows)
        data = [
            {"object": "embeddings", "index": index, "embeddings": one}
            for index, one in enumerate(vectors)
        ]
        return self._answer(call, model, result, data)

    async def outputs(self, call: Call) -> Reply:
        fields = _read_outputs(call.body)
        kinds: list[OutputKind] = list(fields.outputs)
        if not kinds or len(set(kinds)) < len(kinds):
            raise invalid("outputs must name one or more outputs, each once.", "outputs")
        dimensions = _checked(fields.dimensions)
        specs = [
            OutputSpec(kind=kind)
            if kind == "sparse"
            else OutputSpec(dimensions, normalize=fields.normalize, kind=kind)
            for kind in kinds
        ]
        first = specs[0]
        spec = OutputSpec(
            first.dimensions, normalize=first.normalize, kind=first.kind, also=tuple(specs[1:])
        )
        model, result = await self._run(call, fields, spec)
        data: list[dict[str, Any]] = [{"index": i} for i in range(result.sets[0].num_sequences)]
        for kind, rows in zip(kinds, result.sets, strict=True):
            values: list[Any]
            if kind == "dense":
                values = list(await number_rows([rows.rows]))
            elif kind == "sparse":
                values = [
                    {
                        "indices": part["token"][:, 0].tolist(),
                        "values": part["weight"][:, 0].copy(),
                    }
                    for part in rows.split()
                ]
            else:
                values = list(await vector_lists(rows))
            for one, value in zip(data, values, strict=True):
                one[kind] = value
        return self._answer(call, model, result, data)

    async def _run(
        self, call: Call, fields: MultiVectorBody | OutputsBody, spec: OutputSpec
    ) -> tuple[ModelService, OutputsResult]:
        model = self._models.find(fields.model, task="embed")
        texts, token_arrays, is_single = read_inputs(
            fields.input, max_inputs=self._settings.max_inputs
        )
        if texts is None and fields.input_type is not None:
            raise invalid(
                "input_type says how texts are read; it can't be used with token ids.",
                "input_type",
            )
        request = EmbedRequest(
            texts=texts,
            token_arrays=token_arrays,
            is_single=is_single,
            spec=spec,
            input_type=fields.input_type,
            truncate=self._truncates(fields.truncate),
        )
        call.parsed(self._metrics)
        result = await model.pipeline.run_outputs(request, call.caller)
        call.computed()
        return model, result

    def _answer(
        self, call: Call, model: ModelService, result: OutputsResult, data: list[dict[str, Any]]
    ) -> Reply:
        answer = {
            "object": "list",
            "model": model.name,
            "data": data,
            "usage": {"prompt_tokens": result.num_tokens, "total_tokens": result.num_tokens},
        }
        body = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
        return finish(call, result, body, self._metrics)


def _checked(dimensions: int | None) -> int:
    if dimensions is not None and dimensions < 1:
        raise invalid("dimensions must be an integer of at least 1.", "dimensions")
    return dimensions or 0
