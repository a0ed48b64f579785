"""The dialect of Hugging Face's text-embeddings-inference: /embed, /similarity, /decode, /info.

https://huggingface.github.io/text-embeddings-inference. Rows are normalised unless `normalize` is
false, as TEI does, whatever the model's files say.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import orjson

from hotbed import __version__
from hotbed.core.errors import HotbedError, invalid
from hotbed.core.model_info import ModelInfo, Task
from hotbed.core.output import OutputSpec
from hotbed.ivy.answers import finish
from hotbed.ivy.body import BodyReader
from hotbed.ivy.dialects.handlers import Handlers
from hotbed.ivy.encode import number_rows
from hotbed.ivy.errors import HttpError, failure
from hotbed.ivy.http import JSON_TYPE, Reply
from hotbed.ivy.indexes import name_fields
from hotbed.ivy.inputs import INPUT_FORMS, Inputs, check_count, read_inputs
from hotbed.ivy.request import EmbedRequest
from hotbed.ivy.routes import Route
from hotbed.ivy.work import Call

Direction = Literal["Left", "Right", "left", "right"]
_NAMES = {"input": "inputs"}


class TeiInputsBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What the bodies of /embed, /embed_all and /embed_sparse share."""

    inputs: Annotated[
        Inputs,
        msgspec.Meta(description="One text, a list of texts, token ids, or lists of token ids."),
    ]
    truncate: Annotated[
        bool | None, msgspec.Meta(description="Cut what is too long; absent: it is an error.")
    ] = None
    truncation_direction: Annotated[
        Direction | None, msgspec.Meta(description="The end that is cut; absent: Right.")
    ] = None
    prompt_name: Annotated[
        str | None, msgspec.Meta(description="Use the model's prompt of this name. Texts only.")
    ] = None
    model: Annotated[
        str | None, msgspec.Meta(description="A name from /v1/models; absent: the first model.")
    ] = None


class TeiEmbedBody(TeiInputsBody, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /embed."""

    normalize: Annotated[
        bool | None, msgspec.Meta(description="Divide by the L2 norm; absent: yes.")
    ] = None
    dimensions: Annotated[
        int | None, msgspec.Meta(description="Keep this many leading dimensions.")
    ] = None


class SimilarityInputs(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One sentence and those it is compared with."""

    source_sentence: str
    sentences: list[str]


class SimilarityParameters(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How the sentences are read."""

    truncate: bool | None = None
    truncation_direction: Direction | None = None
    prompt_name: str | None = None


class TeiSimilarityBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /similarity."""

    inputs: Annotated[SimilarityInputs, msgspec.Meta(description="What is compared.")]
    parameters: Annotated[
        SimilarityParameters | None, msgspec.Meta(description="How the sentences are read.")
    ] = None
    model: Annotated[
        str | None, msgspec.Meta(description="A name from /v1/models; absent: the first model.")
    ] = None


class TeiDecodeBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /decode."""

    ids: Annotated[list[int | list[int]], msgspec.Meta(description="Token ids, or lists of them.")]
    skip_special_tokens: Annotated[
        bool | None, msgspec.Meta(description="Leave special tokens out; absent: yes.")
    ] = None
    model: Annotated[
        str | None, msgspec.Meta(description="A name from /v1/models; absent: the first model.")
    ] = None


class TeiError(msgspec.Struct, kw_only=True):
    """Answer of a request that failed."""

    error: str
    error_type: Literal[
        "Validation", "Overloaded", "Backend", "Unhealthy", "Timeout", "NotFound", "Unauthorized"
    ]


class TeiInfo(msgspec.Struct, kw_only=True):
    """Answer of GET /info."""

    model_id: str
    model_sha: str | None
    """The fingerprint; null until the first replica was reached."""
    model_dtype: str | None
    model_type: dict[str, Any]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str


_read_embed = BodyReader(TeiEmbedBody, {"inputs": f"must be {INPUT_FORMS}"})
_read_similarity = BodyReader(TeiSimilarityBody)
_read_decode = BodyReader(TeiDecodeBody)


class TeiRoutes(Handlers):
    """The routes' handlers."""

    def routes(self) -> list[Route]:
        return [
            Route(
                path="/embed",
                # InferenceClient posts to the address it is given, as to a hosted endpoint.
                aliases=("/",),
                operation="teiEmbed",
                summary="Embed texts or token ids (TEI).",
                answer=self.embed,
                body=TeiEmbedBody,
                reply=list[list[float]],
                error_reply=tei_error_reply,
                error=TeiError,
            ),
            Route(
                path="/similarity",
                aliases=("/v1/similarity",),
                operation="teiSimilarity",
                summary="Cosine similarity of one sentence to others (TEI).",
                answer=self.similarity,
                body=TeiSimilarityBody,
                reply=list[float],
                error_reply=tei_error_reply,
                error=TeiError,
            ),
            Route(
                path="/decode",
                aliases=("/v1/decode",),
                operation="teiDecode",
                summary="Token ids to text (TEI).",
                answer=self.decode,
                body=TeiDecodeBody,
                reply=list[str],
                error_reply=tei_error_reply,
                error=TeiError,
            ),
        ]

    def info(self) -> Reply:
        """GET /info: of the first model."""
        service = self._models.find(None)
        info, settings = service.pool.info, self._settings
        answer = TeiInfo(
            model_id=service.name,
            model_sha=None if info is None else info.fingerprint,
            model_dtype=None if info is None else info.dtype,
            model_type=_model_type(service.model.expected.task, info),
            max_concurrent_requests=settings.max_requests_in_flight,
            max_input_length=service.model.expected.max_tokens,
            max_batch_tokens=None if info is None else service.pool.chunk_size()[0],
            max_client_batch_size=settings.max_inputs,
            auto_truncate=settings.auto_truncate,
            tokenization_workers=settings.tokenizer_threads,
            version=__version__,
        )
        return Reply(200, msgspec.json.encode(answer))

    async def embed(self, call: Call) -> Reply:
        fields = _read_embed(call.body)
        model = self._models.find(fields.model, task="embed")
        if fields.dimensions is not None and fields.dimensions < 1:
            raise invalid("dimensions must be an integer of at least 1.", "dimensions")
        spec = OutputSpec(
            dimensions=fields.dimensions or 0,
            normalize=True if fields.normalize is None else fields.normalize,
        )
        request = embed_request(
            fields,
            spec,
            max_inputs=self._settings.max_inputs,
            truncate=self._truncates(fields.truncate),
        )
        call.parsed(self._metrics)
        result = await model.pipeline.run(request, call.caller)
        call.computed()
        body = orjson.dumps(await number_rows(result.rows))
        return finish(call, result, body, self._metrics)

    async def similarity(self, call: Call) -> Reply:
        fields = _read_similarity(call.body)
        model = self._models.find(fields.model, task="embed")
        sentences = fields.inputs.sentences
        if not sentences:
            raise invalid("inputs.sentences is an empty list.", "inputs.sentences")
        check_count(len(sentences) + 1, self._settings.max_inputs, "inputs.sentences")
        how = fields.parameters or SimilarityParameters()
        request = EmbedRequest(
            # The source last, so that an error's index is that of the list of sentences.
            texts=[*sentences, fields.inputs.source_sentence],
            token_arrays=None,
            is_single=False,
            spec=OutputSpec(normalize=True),
            prompt_name=how.prompt_name,
            truncate=self._truncates(how.truncate),
            truncation_side=side_of(how.truncation_direction),
            names={"input": "inputs.sentences"},
        )
        call.parsed(self._metrics)
        try:
            result = await model.pipeline.run(request, call.caller)
        except HotbedError as error:
            source = f"inputs.sentences[{len(sentences)}]"
            if error.param != source:
                raise
            name = "inputs.source_sentence"
            raise HotbedError(error.code, error.message.replace(source, name), param=name) from None
        call.computed()
        rows = np.concatenate(result.rows)
        scores = rows[:-1] @ rows[-1]
        body = orjson.dumps(scores, option=orjson.OPT_SERIALIZE_NUMPY)
        return finish(call, result, body, self._metrics)

    async def decode(self, call: Call) -> Reply:
        fields = _read_decode(call.body)
        model = self._models.find(fields.model)
        _, arrays, is_single = read_inputs(
            list(fields.ids), max_inputs=self._settings.max_inputs, field="ids"
        )
        assert arrays is not None, "the reader lets only ids through"
        try:
            texts = await model.tokenize.decode(
                arrays, skip_special_tokens=fields.skip_special_tokens is not False
            )
        except HotbedError as error:
            raise name_fields(error, {"input": "ids"}, is_single=is_single) from None
        return Reply(200, orjson.dumps(texts), (JSON_TYPE,))


def _model_type(task: Task, info: ModelInfo | None) -> dict[str, Any]:
    """TEI's words for what the model does: embedding, reranker (one label) or classifier; of an
    embedding model Hotbed's list of its outputs too.
    """
    if task == "embed":
        if info is None:
            return {"embedding": {"pooling": None}}
        is_splade = "dense" not in info.widths and "sparse" in info.widths
        pooling = "splade" if is_splade else info.pooling
        return {"embedding": {"pooling": pooling, "outputs": list(info.widths)}}
    labels = () if info is None else info.labels
    kind = "classifier" if len(labels) > 1 else "reranker"
    return {
        kind: {
            "id2label": {str(index): label for index, label in enumerate(labels)},
            "label2id": {label: index for index, label in enumerate(labels)},
        }
    }


def embed_request(
    fields: TeiInputsBody, spec: OutputSpec, *, max_inputs: int, truncate: bool
) -> EmbedRequest:
    """The internal request of a body.

    Raises:
        HotbedError: INVALID_INPUT, TOO_LARGE for more inputs than `max_inputs`.
    """
    texts, token_arrays, is_single = read_inputs(
        fields.inputs, max_inputs=max_inputs, field="inputs"
    )
    if texts is None and fields.prompt_name is not None:
        raise invalid(
            "prompt_name puts a prompt before texts; it can't be used with token ids.",
            "prompt_name",
        )
    return EmbedRequest(
        texts=texts,
        token_arrays=token_arrays,
        is_single=is_single,
        spec=spec,
        prompt_name=fields.prompt_name,
        truncate=truncate,
        truncation_side=side_of(fields.truncation_direction),
        names=_NAMES,
    )


def side_of(direction: Direction | None) -> Literal["left", "right"]:
    """The side in the internal request's words."""
    return "left" if direction in ("Left", "left") else "right"


_ERROR_TYPES: dict[int, Any] = {
    401: "Unauthorized", 404: "NotFound", 408: "Timeout", 429: "Overloaded", 500: "Backend",
    503: "Unhealthy", 504: "Timeout",
}  # fmt: skip


def tei_error_reply(error: HotbedError | HttpError) -> Reply:
    """The answer to a request that failed."""
    failed = failure(error)
    kind = _ERROR_TYPES.get(failed.status, "Validation")
    body = msgspec.json.encode(TeiError(error=failed.message, error_type=kind))
    return Reply(failed.status, body, failed.headers)
