"""Token ids for people: POST /tokenize in TEI's and vLLM's dialects, /detokenize in vLLM's.

Both have the path /tokenize: a body with `inputs` is TEI's, one with `prompt` is vLLM's. The ids
are exactly those that the model gets for the text, without truncation.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import orjson

from hotbed.core.errors import HotbedError, invalid
from hotbed.ivy.body import BodyReader
from hotbed.ivy.dialects.handlers import Handlers
from hotbed.ivy.http import JSON_TYPE, Reply
from hotbed.ivy.indexes import name_fields
from hotbed.ivy.inputs import check_count
from hotbed.ivy.registry import ModelService
from hotbed.ivy.routes import Route
from hotbed.ivy.work import Call
from hotbed.text.prompts import resolve_prompt


class TokenizeBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /tokenize."""

    inputs: Annotated[
        str | list[str] | None, msgspec.Meta(description="TEI: one text or a list of texts.")
    ] = None
    prompt: Annotated[str | None, msgspec.Meta(description="vLLM: one text.")] = None
    add_special_tokens: Annotated[
        bool | None, msgspec.Meta(description="The tokenizer's own tokens too; absent: yes.")
    ] = None
    prompt_name: Annotated[
        str | None, msgspec.Meta(description="TEI: put the model's prompt of this name first.")
    ] = None
    return_token_strs: Annotated[
        bool | None, msgspec.Meta(description="vLLM: the tokens as the vocabulary writes them.")
    ] = None
    model: Annotated[
        str | None, msgspec.Meta(description="A name from /v1/models; absent: the first model.")
    ] = None


class TeiToken(msgspec.Struct, kw_only=True):
    """One token in TEI's answer; places in characters."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class VllmTokens(msgspec.Struct, kw_only=True):
    """vLLM's answer."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizeBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /detokenize."""

    tokens: Annotated[list[int], msgspec.Meta(description="Token ids.")]
    model: Annotated[
        str | None, msgspec.Meta(description="A name from /v1/models; absent: the first model.")
    ] = None


class DetokenizeAnswer(msgspec.Struct, kw_only=True):
    """Answer of POST /detokenize."""

    prompt: str


_read = BodyReader(TokenizeBody)
_read_detokenize = BodyReader(DetokenizeBody)


class TokenRoutes(Handlers):
    """The routes' handlers."""

    def routes(self) -> list[Route]:
        return [
            Route(
                path="/tokenize",
                aliases=("/v1/tokenize",),
                operation="tokenize",
                summary="The model's token ids of texts (TEI, vLLM).",
                answer=self.tokenize,
                body=TokenizeBody,
                reply=list[list[TeiToken]] | VllmTokens,
            ),
            Route(
                path="/detokenize",
                aliases=("/v1/detokenize",),
                operation="detokenize",
                summary="The text of token ids (vLLM).",
                answer=self.detokenize,
                body=DetokenizeBody,
                reply=DetokenizeAnswer,
            ),
        ]

    async def tokenize(self, call: Call) -> Reply:
        fields = _read(call.body)
        model = self._models.find(fields.model)
        if (fields.inputs is None) == (fields.prompt is None):
            raise invalid("Give inputs (as TEI) or prompt (as vLLM), one of the two.", "inputs")
        if fields.prompt is not None:
            body = await self._as_vllm(fields, fields.prompt, model)
        else:
            assert fields.inputs is not None
            body = await self._as_tei(fields, fields.inputs, model)
        return Reply(200, body, (JSON_TYPE,))

    async def _as_vllm(self, fields: TokenizeBody, prompt: str, model: ModelService) -> bytes:
        if fields.prompt_name is not None:
            raise invalid("prompt_name goes with inputs, not with prompt.", "prompt_name")
        try:
            (tokens,) = await model.tokenize.describe(
                [prompt], add_special_tokens=fields.add_special_tokens is not False
            )
        except HotbedError as error:
            raise name_fields(error, {"input": "prompt"}, is_single=True) from None
        answer = VllmTokens(
            count=len(tokens),
            max_model_len=model.model.expected.max_tokens,
            tokens=[token.id for token in tokens],
            token_strs=[token.token for token in tokens] if fields.return_token_strs else None,
        )
        return msgspec.json.encode(answer)

    async def _as_tei(
        self, fields: TokenizeBody, inputs: str | list[str], model: ModelService
    ) -> bytes:
        if fields.return_token_strs is not None:
            raise invalid("return_token_strs goes with prompt, not with inputs.")
        texts = [inputs] if isinstance(inputs, str) else inputs
        check_count(len(texts), self._settings.max_inputs, "inputs")
        prefix = resolve_prompt(
            model.model.prompts, prompt_name=fields.prompt_name, input_type=None
        )
        try:
            described = await model.tokenize.describe(
                texts, prefix=prefix, add_special_tokens=fields.add_special_tokens is not False
            )
        except HotbedError as error:
            raise name_fields(
                error, {"input": "inputs"}, is_single=isinstance(inputs, str)
            ) from None
        answer = [
            [
                {
                    "id": token.id,
                    "text": token.token if token.is_special else whole[token.start : token.stop],
                    "special": token.is_special,
                    "start": None if token.is_special else token.start,
                    "stop": None if token.is_special else token.stop,
                }
                for token in tokens
            ]
            for whole, tokens in zip((prefix + text for text in texts), described, strict=True)
        ]
        return orjson.dumps(answer)

    async def detokenize(self, call: Call) -> Reply:
        fields = _read_detokenize(call.body)
        model = self._models.find(fields.model)
        try:
            (text,) = await model.tokenize.decode([fields.tokens], skip_special_tokens=False)
        except HotbedError as error:
            raise name_fields(error, {"input": "tokens"}, is_single=True) from None
        return Reply(200, msgspec.json.encode(DetokenizeAnswer(prompt=text)), (JSON_TYPE,))
