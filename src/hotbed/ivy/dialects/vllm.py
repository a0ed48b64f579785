"""vLLM's own dialect: POST /pooling, and its truncate_prompt_tokens.

https://docs.vllm.ai/en/latest/models/pooling_models. Its /tokenize and /detokenize are in
`hotbed.ivy.dialects.tokens`.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import msgspec
import orjson

from hotbed.core.errors import invalid
from hotbed.core.output import OutputKind, OutputSpec
from hotbed.ivy.answers import finish
from hotbed.ivy.body import BodyReader
from hotbed.ivy.dialects.handlers import Handlers
from hotbed.ivy.dialects.shared import CacheSalt, RequestId, answer_id
from hotbed.ivy.encode import ROW_DTYPES, encode_rows, vector_lists, vector_strings
from hotbed.ivy.http import Reply
from hotbed.ivy.inputs import INPUT_FORMS, Inputs, read_inputs
from hotbed.ivy.outputs import OutputsResult
from hotbed.ivy.registry import ModelService
from hotbed.ivy.request import EmbedRequest, EmbedResult
from hotbed.ivy.routes import Route
from hotbed.ivy.work import Call


class PoolingBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /pooling."""

    input: Annotated[
        Inputs,
        msgspec.Meta(description="One text, a list of texts, token ids, or lists of token ids."),
    ]
    model: Annotated[
        str | None, msgspec.Meta(description="A name from /v1/models; absent: the first model.")
    ] = None
    task: Annotated[
        Literal["embed", "token_embed"] | None,
        msgspec.Meta(
            description="embed: one row an input. token_embed: a row a token, of the model's head "
            "for late interaction if it has one. Absent: embed, where the model has dense rows."
        ),
    ] = None
    input_type: Annotated[
        Literal["query", "document"] | None,
        msgspec.Meta(description="Hotbed's own: what texts are, for models that tell them apart."),
    ] = None
    encoding_format: Annotated[
        Literal["float", "base64"] | None,
        msgspec.Meta(description="Numbers (the default) or little-endian float32 in base64."),
    ] = None
    dimensions: Annotated[
        int | None, msgspec.Meta(description="Keep this many leading dimensions.")
    ] = None
    use_activation: Annotated[
        bool | None,
        msgspec.Meta(
            description="Normalise; absent: as the model's files say, states of tokens yes."
        ),
    ] = None
    truncate_prompt_tokens: Annotated[
        int | None,
        msgspec.Meta(description="Cut inputs to so many tokens; -1: to the model's limit."),
    ] = None
    truncation_side: Annotated[
        Literal["left", "right"] | None,
        msgspec.Meta(description="The end that is cut; absent: right."),
    ] = None
    add_special_tokens: Annotated[
        bool | None, msgspec.Meta(description="The tokenizer's own tokens too; absent: yes.")
    ] = None
    user: Annotated[str | None, msgspec.Meta(description="Accepted and not used.")] = None
    priority: Annotated[int | None, msgspec.Meta(description="Accepted and not used.")] = None
    request_id: RequestId = None
    cache_salt: CacheSalt = None


class Pooled(msgspec.Struct, kw_only=True):
    """One row of the answer."""

    index: int
    object: Literal["pooling"]
    data: list[float | list[float]] | str


class PoolingUsage(msgspec.Struct, kw_only=True):
    """Tokens that were computed."""

    prompt_tokens: int
    total_tokens: int


class PoolingAnswer(msgspec.Struct, kw_only=True):
    """Answer of POST /pooling."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Pooled]
    usage: PoolingUsage


_read = BodyReader(PoolingBody, {"input": f"must be {INPUT_FORMS}"})


class VllmRoutes(Handlers):
    """The route's handler."""

    def routes(self) -> list[Route]:
        return [
            Route(
                path="/pooling",
                aliases=("/v1/pooling",),
                operation="vllmPooling",
                summary="Embed texts or token ids (vLLM).",
                answer=self.pooling,
                body=PoolingBody,
                reply=PoolingAnswer,
            )
        ]

    async def pooling(self, call: Call) -> Reply:
        fields = _read(call.body)
        model = self._models.find(fields.model, task="embed")
        texts, token_arrays, is_single = read_inputs(
            fields.input, max_inputs=self._settings.max_inputs
        )
        if fields.dimensions is not None and fields.dimensions < 1:
            raise invalid("dimensions must be an integer of at least 1.", "dimensions")
        encoding = fields.encoding_format or "float"
        truncate, max_tokens = truncation(fields.truncate_prompt_tokens)
        if fields.truncate_prompt_tokens is None:
            truncate = self._settings.auto_truncate
        if texts is None and fields.input_type is not None:
            raise invalid(
                "input_type says how texts are read; it can't be used with token ids.",
                "input_type",
            )
        kind = await self._kind(model, fields.task, call)
        normalize = fields.use_activation
        if kind == "tokens" and normalize is None:
            normalize = True
        request = EmbedRequest(
            texts=texts,
            token_arrays=token_arrays,
            is_single=is_single,
            spec=OutputSpec(
                dimensions=fields.dimensions or 0,
                dtype=ROW_DTYPES[encoding],
                normalize=normalize,
                kind=kind,
            ),
            input_type=fields.input_type,
            truncate=truncate,
            truncation_side=fields.truncation_side or "right",
            max_tokens=max_tokens,
            add_special_tokens=fields.add_special_tokens is not False,
            names=TRUNCATION_NAMES,
        )
        name = answer_id("pool", fields.request_id)
        call.parsed(self._metrics)
        result: EmbedResult | OutputsResult
        rows: list[Any]
        if kind == "dense":
            result = await model.pipeline.run(request, call.caller)
            call.computed()
            rows = list(await encode_rows(result.rows, encoding))
        else:
            result = await model.pipeline.run_outputs(request, call.caller)
            call.computed()
            made = result.sets[0]
            rows = vector_strings(made) if encoding == "base64" else list(await vector_lists(made))
        answer = {
            "id": name,
            "object": "list",
            "created": int(time.time()),
            "model": model.name,
            "data": [
                {"index": index, "object": "pooling", "data": row} for index, row in enumerate(rows)
            ],
            "usage": {"prompt_tokens": result.num_tokens, "total_tokens": result.num_tokens},
        }
        return finish(call, result, orjson.dumps(answer), self._metrics)

    @staticmethod
    async def _kind(model: ModelService, task: str | None, call: Call) -> OutputKind:
        if task == "embed":
            return "dense"
        if task is None:
            info = model.pool.info
            if info is None or info.task == "score" or "dense" in info.widths:
                return "dense"
        widths = (await model.pipeline.info(call.caller)).widths
        return "multi_vector" if "multi_vector" in widths else "tokens"


TRUNCATION_NAMES = {"max_tokens": "truncate_prompt_tokens"}


def truncation(truncate_prompt_tokens: int | None) -> tuple[bool, int | None]:
    """(whether to cut, to how many tokens) as vLLM's field says.

    Raises:
        HotbedError: INVALID_INPUT for a number below -1, or 0.
    """
    if truncate_prompt_tokens is None:
        return False, None
    if truncate_prompt_tokens == -1:
        return True, None
    if truncate_prompt_tokens < 1:
        raise invalid(
            "truncate_prompt_tokens must be -1 (the model's limit) or at least 1.",
            "truncate_prompt_tokens",
        )
    return True, truncate_prompt_tokens
