"""POST /rerank in the dialects of Cohere (v1, v2), Jina, vLLM and TEI.

They share the paths. A body with `texts` is TEI's and is answered as TEI does, with a bare list;
one with `documents` gets an answer that holds what the other three have. Where a request does not
say, documents are echoed as its dialect does: Jina and vLLM do, Cohere's version 2 (/v2/rerank) and
TEI do not. Results come best first, equal scores in the order of the request.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from hotbed.core.errors import invalid
from hotbed.ivy.answers import finish
from hotbed.ivy.body import MAX_ECHOED_NAME, BodyReader
from hotbed.ivy.dialects.cohere import CohereError, cohere_error_reply
from hotbed.ivy.dialects.handlers import Handlers
from hotbed.ivy.dialects.shared import (
    CacheSalt,
    Direction,
    Instruction,
    MaxTokensPerDoc,
    ModelName,
    Priority,
    RawScores,
    RequestId,
    Side,
    Truncate,
    TruncatePromptTokens,
    Usage,
    UseActivation,
    User,
    answer_id,
    check_texts,
    check_tokens_per_doc,
    is_raw,
    usage,
)
from hotbed.ivy.dialects.vllm import TRUNCATION_NAMES, truncation
from hotbed.ivy.http import Reply
from hotbed.ivy.routes import Route
from hotbed.ivy.score import ScoreRequest, ScoreResult
from hotbed.ivy.settings import IvySettings
from hotbed.ivy.work import Call
from hotbed.text.pairs import PairFields, PairOptions


class TextDocument(msgspec.Struct):
    """A document of the answer."""

    text: str


class RerankBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /rerank."""

    query: Annotated[str, msgspec.Meta(description="What the documents are ranked for.")]
    documents: Annotated[
        list[str | dict[str, Any]] | None,
        msgspec.Meta(
            description="Texts, or objects with a text (see rank_fields); up to 2,048, none empty."
        ),
    ] = None
    rank_fields: Annotated[
        list[str] | None,
        msgspec.Meta(
            description="Cohere, version 1: of documents that are objects, the fields that are "
            "read, in this order, a line each; absent: text."
        ),
    ] = None
    texts: Annotated[
        list[str] | None, msgspec.Meta(description="TEI: the documents, for TEI's answer.")
    ] = None
    model: ModelName = None
    top_n: Annotated[
        int | None, msgspec.Meta(description="Only the best so many; absent or 0: all.")
    ] = None
    top_k: Annotated[int | None, msgspec.Meta(description="top_n by another name.")] = None
    return_documents: Annotated[
        bool | None,
        msgspec.Meta(
            description="Give each document's text with its score; absent: true, but at /v2/rerank "
            "and with texts false."
        ),
    ] = None
    return_text: Annotated[
        bool | None, msgspec.Meta(description="TEI: return_documents by another name.")
    ] = None
    raw_scores: RawScores = None
    use_activation: UseActivation = None
    instruction: Instruction = None
    truncate: Truncate = None
    truncation_side: Side = None
    truncation_direction: Direction = None
    max_tokens_per_doc: MaxTokensPerDoc = None
    max_tokens_per_query: Annotated[
        Literal[0] | None,
        msgspec.Meta(description="vLLM: only 0, no limit: queries are never cut."),
    ] = None
    truncate_prompt_tokens: TruncatePromptTokens = None
    user: User = None
    priority: Priority = None
    request_id: RequestId = None
    cache_salt: CacheSalt = None


class RerankResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One document's score."""

    index: int
    """Its place in the request."""
    relevance_score: float
    document: TextDocument | None = None
    """Absent where it is not wanted, never null."""


class RerankAnswer(msgspec.Struct, kw_only=True):
    """Answer of POST /rerank: best first, equal scores in the order of the request."""

    id: str
    object: Literal["list"]
    model: str
    results: list[RerankResult]
    usage: Usage
    meta: dict[str, Any]
    """As Cohere's clients read it: api_version, billed_units, tokens."""


class TeiRank(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One document's score in TEI's answer."""

    index: int
    score: float
    text: str | None = None
    """Absent unless asked for."""


_read = BodyReader(RerankBody)


class RerankRoute(Handlers):
    """The route's handler."""

    def routes(self) -> list[Route]:
        return [
            Route(
                path="/v1/rerank",
                aliases=("/rerank",),
                operation="rerank",
                summary="Rank documents for a query (Jina, vLLM, TEI, Cohere version 1).",
                answer=functools.partial(self.post, echoes=True),
                body=RerankBody,
                reply=RerankAnswer | list[TeiRank],
            ),
            Route(
                path="/v2/rerank",
                operation="cohereRerankV2",
                summary="Rank documents for a query (Cohere, version 2).",
                answer=functools.partial(self.post, echoes=False),
                body=RerankBody,
                reply=RerankAnswer | list[TeiRank],
                error_reply=cohere_error_reply,
                error=CohereError,
            ),
        ]

    async def post(self, call: Call, *, echoes: bool) -> Reply:
        """The answer; `echoes`: with the documents where the request does not say."""
        fields = _read(call.body)
        model = self._models.find(fields.model, task="score")
        request = to_request(fields, self._settings)
        name = answer_id("rerank", fields.request_id)
        call.parsed(self._metrics)
        result = await model.scores.run(request, call.caller)
        call.computed()
        best = best_first(result.relevance, _top_n(fields))
        answer: Any
        if fields.texts is not None:
            answer = _as_tei(result, best, request, with_text=bool(_wants_text(fields)))
        else:
            asked = _wants_text(fields)
            with_text = echoes if asked is None else asked
            answer = {
                "id": name,
                "object": "list",
                "model": model.name,
                **_as_cohere(result, best, request, with_text=with_text),
            }
        body = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
        return finish(call, result, body, self._metrics)


def _wants_text(fields: RerankBody) -> bool | None:
    return fields.return_text if fields.return_documents is None else fields.return_documents


def to_request(fields: RerankBody, settings: IvySettings) -> ScoreRequest:
    """The internal request. Raises INVALID_INPUT naming the field."""
    documents, name = _documents(fields, settings.max_inputs)
    _top_n(fields)
    _one_of(fields, "return_documents", "return_text")
    _one_of(fields, "truncation_side", "truncation_direction")
    _one_of(fields, "truncate", "truncate_prompt_tokens")
    truncate, max_tokens = truncation(fields.truncate_prompt_tokens)
    if fields.truncate_prompt_tokens is None:
        truncate = settings.auto_truncate if fields.truncate is None else fields.truncate
    max_document_tokens = check_tokens_per_doc(fields.max_tokens_per_doc)
    if max_document_tokens is not None:
        truncate = fields.truncate is not False
    is_left = "left" in (fields.truncation_side, (fields.truncation_direction or "").lower())
    return ScoreRequest(
        queries=fields.query,
        documents=documents,
        raw_scores=is_raw(fields.raw_scores, fields.use_activation),
        options=PairOptions(
            truncate=truncate,
            truncation_side="left" if is_left else "right",
            max_tokens=max_tokens,
            max_document_tokens=max_document_tokens,
            instruction=fields.instruction,
            fields=PairFields(query="query", document=name + "[{}]"),
        ),
        names=TRUNCATION_NAMES,
    )


def _documents(fields: RerankBody, max_inputs: int) -> tuple[list[str], str]:
    """(the documents' texts, the name of their field)."""
    if (fields.documents is None) == (fields.texts is None):
        raise invalid("Give documents, or texts (as TEI), one of the two.", "documents")
    if fields.texts is not None:
        check_texts(len(fields.texts), max_inputs, "texts")
        return fields.texts, "texts"
    assert fields.documents is not None
    check_texts(len(fields.documents), max_inputs, "documents")
    if fields.rank_fields is not None and not fields.rank_fields:
        raise invalid("rank_fields is an empty list; it needs at least 1 name.", "rank_fields")
    if fields.rank_fields and all(isinstance(document, str) for document in fields.documents):
        raise invalid(
            "rank_fields is for documents that are objects; these are texts.", "rank_fields"
        )
    names = fields.rank_fields or ["text"]
    return [
        document if isinstance(document, str) else _text_of(document, names, index)
        for index, document in enumerate(fields.documents)
    ], "documents"


def _text_of(document: dict[str, Any], names: list[str], index: int) -> str:
    """What is read of a document that is an object: a line a field."""
    lines = []
    for name in names:
        value = document.get(name)
        if value is None:
            continue
        if not isinstance(value, str):
            where = f"documents[{index}].{name[:MAX_ECHOED_NAME]}"
            raise invalid(f"{where} must be a string.", where)
        lines.append(value)
    if not lines:
        shown = ", ".join(name[:MAX_ECHOED_NAME] for name in names[:8])
        raise invalid(f"documents[{index}] has no field {shown}.", f"documents[{index}]")
    return "\n".join(lines)


def best_first(scores: NDArray[np.float32], top_n: int | None) -> list[int]:
    """Indexes by falling score, equal ones in their order; the first `top_n` (None or 0: all)."""
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return order[: top_n or None]


def _as_cohere(
    result: ScoreResult, best: list[int], request: ScoreRequest, *, with_text: bool
) -> dict[str, Any]:
    scores = result.relevance
    results = []
    for index in best:
        entry: dict[str, Any] = {"index": index, "relevance_score": scores[index]}
        if with_text:
            entry["document"] = {"text": request.documents[index]}
        results.append(entry)
    return {
        "results": results,
        "usage": usage(result),
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": 1},
            "tokens": {"input_tokens": result.num_tokens},
        },
    }


def _as_tei(
    result: ScoreResult, best: list[int], request: ScoreRequest, *, with_text: bool
) -> list[dict[str, Any]]:
    scores = result.relevance
    return [
        {"index": index, "score": scores[index]}
        | ({"text": request.documents[index]} if with_text else {})
        for index in best
    ]


def _top_n(fields: RerankBody) -> int | None:
    _one_of(fields, "top_n", "top_k")
    top_n = fields.top_k if fields.top_n is None else fields.top_n
    if top_n is not None and top_n < 0:
        raise invalid("top_n must be at least 0; absent, null and 0 mean all.", "top_n")
    return top_n


def _one_of(fields: RerankBody, one: str, other: str) -> None:
    if getattr(fields, one) is not None and getattr(fields, other) is not None:
        raise invalid(f"{one} and {other} mean the same: give one of them.", other)
