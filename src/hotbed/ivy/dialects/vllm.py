"""vLLM's own dialect: POST /pooling, and its truncate_prompt_tokens.

https://docs.vllm.ai/en/latest/models/pooling_models. Its /tokenize and /detokenize are in
`hotbed.ivy.dialects.tokens`.
"""

from __future__ import annotations

import time
from typing import Annotated, Literal

import msgspec
import orjson

from hotbed.core.errors import invalid
from hotbed.core.output import OutputSpec
from hotbed.ivy.answers import finish
from hotbed.ivy.body import BodyReader
from hotbed.ivy.dialects.handlers import Handlers
from hotbed.ivy.dialects.shared import CacheSalt, RequestId, answer_id
from hotbed.ivy.encode import ROW_DTYPES, encode_rows
from hotbed.ivy.http import Reply
from hotbed.ivy.inputs import INPUT_FORMS, Inputs, read_inputs
from hotbed.ivy.request import EmbedRequest
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
        Literal["embed"] | None, msgspec.Meta(description="One row an input; absent: the same.")
    ] = None
    encoding_format: Annotated[
        Literal["float", "base64"] | None,
        msgspec.Meta(description="Numbers (the default) or little-endian float32 in base64."),
    ] = None
    dimensions: Annotated[
        int | None, msgspec.Meta(description="Keep this many leading dimensions.")
    ] = None
    use_activation: Annotated[
        bool | None, msgspec.Meta(description="Normalise; absent: as the model's files say.")
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
    data: list[float] | str


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
        model = self._models.find(fields.model)
        texts, token_arrays, is_single = read_inputs(
            fields.input, max_inputs=self._settings.max_inputs
        )
        if fields.dimensions is not None and fields.dimensions < 1:
            raise invalid("dimensions must be an integer of at least 1.", "dimensions")
        encoding = fields.encoding_format or "float"
        truncate, max_tokens = truncation(fields.truncate_prompt_tokens)
        if fields.truncate_prompt_tokens is None:
            truncate = self._settings.auto_truncate
        request = EmbedRequest(
            texts=texts,
            token_arrays=token_arrays,
            is_single=is_single,
            spec=OutputSpec(
                dimensions=fields.dimensions or 0,
                dtype=ROW_DTYPES[encoding],
                normalize=fields.use_activation,
            ),
            truncate=truncate,
            truncation_side=fields.truncation_side or "right",
            max_tokens=max_tokens,
            add_special_tokens=fields.add_special_tokens is not False,
            names=TRUNCATION_NAMES,
        )
        name = answer_id("pool", fields.request_id)
        call.parsed(self._metrics)
        result = await model.pipeline.run(request, call.caller)
        call.computed()
        rows = await encode_rows(result.rows, encoding)
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
