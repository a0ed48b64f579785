"""POST /v1/embeddings: OpenAI's dialect, and what Perplexity's and Jina's add to it.

The three share the path and the form of the answer, so one struct holds the fields of all. Which
dialect a request speaks follows from its fields and its model:

- Perplexity's: `encoding_format` is ``base64_int8`` or ``base64_binary``, or is absent and the
  model is one of Perplexity's (`hotbed.ivy.dialects.perplexity`);
- Jina's: it has a field that only Jina knows (`hotbed.ivy.dialects.jina`);
- OpenAI's otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
import orjson

from hotbed.core.errors import invalid
from hotbed.core.output import OutputSpec
from hotbed.ivy.answers import finish
from hotbed.ivy.body import BodyReader
from hotbed.ivy.dialects import jina, perplexity, vllm
from hotbed.ivy.dialects.handlers import Handlers
from hotbed.ivy.dialects.shared import CacheSalt
from hotbed.ivy.encode import ROW_DTYPES, Encoding, encode_rows
from hotbed.ivy.http import Reply
from hotbed.ivy.inputs import INPUT_FORMS, Inputs, read_inputs
from hotbed.ivy.request import EmbedRequest
from hotbed.ivy.routes import Route
from hotbed.ivy.work import Call
from hotbed.text.prompts import InputType


class EmbeddingsBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/embeddings."""

    input: Annotated[
        Inputs,
        msgspec.Meta(
            description="One text, a list of texts (or of objects with a text), one list of token "
            "ids, or a list of lists of token ids (of this model's tokenizer). Up to 2,048 inputs, "
            "none of them empty."
        ),
    ]
    model: Annotated[
        str | None, msgspec.Meta(description="A name from /v1/models; absent: the served model.")
    ] = None
    encoding_format: Annotated[
        Encoding | None,
        msgspec.Meta(
            description="float (the default, except for Perplexity's models): lists of numbers. "
            "base64: strings of little-endian float32, about 20 times cheaper. base64_int8 (the "
            "default for Perplexity's models) and base64_binary: Perplexity's encodings, the "
            "first dimension in the least significant bit. int8, uint8, binary, ubinary: lists."
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

    truncate_prompt_tokens: Annotated[
        int | None,
        msgspec.Meta(description="vLLM: cut inputs to so many tokens; -1: to the model's limit."),
    ] = None
    add_special_tokens: Annotated[
        bool | None,
        msgspec.Meta(description="vLLM: the tokenizer's own tokens too; absent: yes."),
    ] = None
    use_activation: Annotated[
        bool | None, msgspec.Meta(description="vLLM: normalize by another name.")
    ] = None
    priority: Annotated[int | None, msgspec.Meta(description="Accepted and not used.")] = None
    request_id: Annotated[
        str | None,
        msgspec.Meta(description="vLLM: accepted and not used; the header x-request-id is echoed."),
    ] = None
    cache_salt: CacheSalt = None
    task: Annotated[
        str | None, msgspec.Meta(description="Jina: what the rows are for, as retrieval.query.")
    ] = None
    embedding_type: Annotated[
        jina.EmbeddingTypes | None,
        msgspec.Meta(description="Jina: encoding_format by another name, also a list of one."),
    ] = None
    normalized: Annotated[
        bool | None, msgspec.Meta(description="Jina: normalize by another name.")
    ] = None
    late_chunking: Annotated[
        bool | None,
        msgspec.Meta(
            description="Jina: the texts are the chunks of one document in order, each read within "
            "it; for models that pool by mean. Never truncated."
        ),
    ] = None


class Embedding(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One row of the answer."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Cost(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What Perplexity's API would bill; here nothing."""

    input_cost: float
    total_cost: float
    currency: Literal["USD"]


class Usage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Tokens that were computed, special tokens included."""

    prompt_tokens: int
    total_tokens: int
    cost: Cost | msgspec.UnsetType = msgspec.UNSET
    """Only in Perplexity's dialect."""


class EmbeddingsAnswer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Answer of POST /v1/embeddings."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


FIELDS = EmbeddingsBody.__struct_fields__
EXPECTED: Mapping[str, str] = {
    "input": f"must be {INPUT_FORMS}",
    "dimensions": "must be an integer of at least 1",
}
_NO_NAMES: Mapping[str, str] = {}
_read = BodyReader(EmbeddingsBody, EXPECTED)


class EmbeddingsRoute(Handlers):
    """The route's handler."""

    def routes(self) -> list[Route]:
        return [
            Route(
                path="/v1/embeddings",
                aliases=("/embeddings",),
                operation="createEmbeddings",
                summary="Embed texts or token ids (OpenAI, Perplexity, Jina).",
                answer=self.post,
                body=EmbeddingsBody,
                reply=EmbeddingsAnswer,
            )
        ]

    async def post(self, call: Call) -> Reply:
        """The answer. Raises what decoding and the pipeline raise."""
        fields = _read(call.body)
        model = self._models.find(fields.model, task="embed")
        request, encoding, is_perplexity = to_request(
            fields,
            is_pplx_model=model.quantizer == "pplx",
            max_inputs=self._settings.max_inputs,
            auto_truncate=self._settings.auto_truncate,
        )
        call.parsed(self._metrics)
        result = await model.pipeline.run(request, call.caller)
        call.computed()
        usage: dict[str, Any] = {
            "prompt_tokens": result.num_tokens,
            "total_tokens": result.num_tokens,
        }
        if is_perplexity:
            usage["cost"] = perplexity.COST
        answer = orjson.dumps(
            {
                "object": "list",
                "data": [
                    {"object": "embedding", "index": index, "embedding": row}
                    for index, row in enumerate(await encode_rows(result.rows, encoding))
                ],
                "model": model.name,
                "usage": usage,
            }
        )
        return finish(call, result, answer, self._metrics)


def to_request(
    fields: EmbeddingsBody, *, is_pplx_model: bool, max_inputs: int, auto_truncate: bool = False
) -> tuple[EmbedRequest, Encoding, bool]:
    """(the internal request, how rows are written, whether it speaks Perplexity's dialect).

    Raises:
        HotbedError: INVALID_INPUT naming the field.
    """
    if fields.dimensions is not None and fields.dimensions < 1:
        raise invalid(f"dimensions {EXPECTED['dimensions']}.", "dimensions")
    texts, token_arrays, is_single = read_inputs(fields.input, max_inputs=max_inputs)
    input_type: InputType | None = fields.input_type
    prompt_name, normalize = fields.prompt_name, _normalize(fields)
    encoding = fields.encoding_format
    is_jina = jina.speaks(fields)
    if is_jina:
        wishes = jina.read(fields)
        input_type, prompt_name = wishes.input_type, wishes.prompt_name
        encoding = wishes.encoding
    is_perplexity = perplexity.speaks(encoding, is_pplx_model=is_pplx_model, is_jina=is_jina)
    if is_perplexity:
        encoding = encoding or perplexity.DEFAULT_ENCODING
        perplexity.check(texts)
    encoding = encoding or "float"
    if token_arrays is not None:
        for name in ("input_type", "prompt_name", "task"):
            if getattr(fields, name) is not None:
                raise invalid(
                    f"{name} puts a prompt before texts; it can't be used with token ids.", name
                )
    truncate = auto_truncate if fields.truncate is None else fields.truncate
    max_tokens, names = None, _NO_NAMES
    if fields.truncate_prompt_tokens is not None:
        if fields.truncate is not None:
            raise invalid(
                "truncate and truncate_prompt_tokens mean the same: give one of them.", "truncate"
            )
        truncate, max_tokens = vllm.truncation(fields.truncate_prompt_tokens)
        names = vllm.TRUNCATION_NAMES
    documents: list[list[str]] | None = None
    if fields.late_chunking:
        if texts is None:
            raise invalid("late_chunking takes texts, no token ids.", "late_chunking")
        # The texts are one document's chunks: input[0][3] is the client's input[3].
        documents, texts, is_single = [texts], None, True
        truncate = False
    request = EmbedRequest(
        texts=texts,
        token_arrays=token_arrays,
        documents=documents,
        is_single=is_single,
        spec=OutputSpec(
            dimensions=fields.dimensions or 0, dtype=ROW_DTYPES[encoding], normalize=normalize
        ),
        prompt_name=prompt_name,
        input_type=input_type,
        truncate=truncate,
        truncation_side=fields.truncation_side or "right",
        max_tokens=max_tokens,
        max_request_tokens=perplexity.MAX_REQUEST_TOKENS if is_perplexity else None,
        add_special_tokens=fields.add_special_tokens is not False,
        names=names,
    )
    return request, encoding, is_perplexity


def _normalize(fields: EmbeddingsBody) -> bool | None:
    """Whether to normalise, in whichever dialect's word it was said."""
    said = [
        n for n in ("normalize", "normalized", "use_activation") if getattr(fields, n) is not None
    ]
    if len(said) > 1:
        raise invalid(f"{said[1]} and {said[0]} mean the same: give one of them.", said[1])
    asked: bool | None = getattr(fields, said[0]) if said else None
    return asked
