"""POST /rerank and /score: a query and documents, or pairs, in; scores out.

`/rerank` is the form that vLLM, Jina and Cohere share; `/score` is vLLM's. Known fields only; null
for an optional field means absent.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import orjson

from hotbed.core.errors import invalid
from hotbed.ivy.body import BodyReader
from hotbed.ivy.openai import Usage, model_not_found
from hotbed.ivy.score import ScoreRequest, ScoreResult
from hotbed.text.pairs import PairFields, PairOptions


class TextDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A document as an object, as Jina's and Cohere's clients send it."""

    text: str


ModelName = Annotated[
    str | None, msgspec.Meta(description="A name from /v1/models; absent: the served model.")
]
Truncate = Annotated[
    bool | None,
    msgspec.Meta(
        description="Cut documents that are too long together with their query; false: refuse "
        "them. Absent: true. Queries are never cut."
    ),
]
Side = Annotated[
    Literal["left", "right"] | None,
    msgspec.Meta(description="The end of a document that is cut; absent: right."),
]
RawScores = Annotated[
    bool | None,
    msgspec.Meta(description="Logits instead of scores; absent: false."),
]
Instruction = Annotated[
    str | None,
    msgspec.Meta(description="For models whose template has one; absent: the model's own."),
]


class RerankBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /rerank."""

    query: str
    documents: list[str | TextDocument]
    model: ModelName = None
    top_n: Annotated[
        int | None, msgspec.Meta(description="Only the best so many; absent or 0: all.")
    ] = None
    return_documents: Annotated[
        bool | None,
        msgspec.Meta(description="Give each document's text with its score; absent: false."),
    ] = None
    raw_scores: RawScores = None
    instruction: Instruction = None
    truncate: Truncate = None
    truncation_side: Side = None


class ScoreBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /score."""

    text_1: str | list[str]
    text_2: str | list[str]
    model: ModelName = None
    raw_scores: RawScores = None
    instruction: Instruction = None
    truncate: Truncate = None
    truncation_side: Side = None


class RerankResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One document's score."""

    index: int
    """Its place in the request."""
    relevance_score: float
    document: TextDocument | None = None
    """Absent unless asked for."""


class RerankAnswer(msgspec.Struct, kw_only=True):
    """Answer of POST /rerank: best first, equal scores in the order of the request."""

    id: str
    object: Literal["list"]
    model: str
    results: list[RerankResult]
    usage: Usage


class Score(msgspec.Struct, kw_only=True):
    """One pair's score."""

    index: int
    object: Literal["score"]
    score: float


class ScoreAnswer(msgspec.Struct, kw_only=True):
    """Answer of POST /score, in the order of the pairs."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Score]
    usage: Usage


_read_rerank = BodyReader(RerankBody)
_read_score = BodyReader(ScoreBody)


def decode_rerank(
    body: bytes, *, names: Collection[str], max_inputs: int
) -> tuple[ScoreRequest, RerankBody]:
    """The internal request of a body, and the body for its answer.

    Raises:
        HotbedError: INVALID_INPUT naming the field; MODEL_NOT_FOUND.
    """
    fields = _read_rerank(body)
    check_model(fields.model, names)
    check_count("documents", len(fields.documents), max_inputs)
    if fields.top_n is not None and fields.top_n < 0:
        raise invalid("top_n must be at least 0; absent, null and 0 mean all.", "top_n")
    request = ScoreRequest(
        queries=fields.query,
        documents=[text_of(document) for document in fields.documents],
        raw_scores=bool(fields.raw_scores),
        options=_options(fields, PairFields(query="query")),
    )
    return request, fields


def encode_rerank(result: ScoreResult, fields: RerankBody, model: str) -> bytes:
    """The answer's body."""
    results = []
    for index in best_first(result.relevance, fields.top_n):
        entry: dict[str, Any] = {"index": index, "relevance_score": result.relevance[index]}
        if fields.return_documents:
            entry["document"] = {"text": text_of(fields.documents[index])}
        results.append(entry)
    answer = {
        "id": f"rerank-{uuid.uuid4().hex}",
        "object": "list",
        "model": model,
        "results": results,
        "usage": usage(result),
    }
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def decode_score(body: bytes, *, names: Collection[str], max_inputs: int) -> ScoreRequest:
    """The internal request of a body: one text with each of several, or as many as those.

    Raises:
        HotbedError: INVALID_INPUT naming the field; MODEL_NOT_FOUND.
    """
    fields = _read_score(body)
    check_model(fields.model, names)
    firsts, seconds = fields.text_1, fields.text_2
    documents = [seconds] if isinstance(seconds, str) else seconds
    check_count("text_2", len(documents), max_inputs)
    if isinstance(firsts, list):
        check_count("text_1", len(firsts), max_inputs)
        if len(firsts) == 1:
            firsts = firsts[0]
        elif len(firsts) != len(documents):
            raise invalid(
                f"text_1 has {len(firsts)} texts and text_2 {len(documents)}: give one text_1 for "
                "all, or as many as text_2.",
                "text_1",
            )
    names_of_texts = PairFields(
        query="text_1[{}]" if isinstance(firsts, list) else "text_1",
        document="text_2[{}]" if isinstance(seconds, list) else "text_2",
    )
    return ScoreRequest(
        queries=firsts,
        documents=documents,
        raw_scores=bool(fields.raw_scores),
        options=_options(fields, names_of_texts),
    )


def encode_score(result: ScoreResult, model: str) -> bytes:
    """The answer's body."""
    answer = {
        "id": f"score-{uuid.uuid4().hex}",
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "data": [
            {"index": index, "object": "score", "score": score}
            for index, score in enumerate(result.relevance)
        ],
        "usage": usage(result),
    }
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def best_first(scores: np.ndarray[Any, np.dtype[np.float32]], top_n: int | None) -> list[int]:
    """Indexes by falling score, equal ones in their order; the first `top_n` (None or 0: all)."""
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return order[: top_n or None]


def text_of(document: str | TextDocument) -> str:
    """A document's text in either form."""
    return document if isinstance(document, str) else document.text


def usage(result: ScoreResult) -> dict[str, int]:
    """Tokens that were computed."""
    return {"prompt_tokens": result.num_tokens, "total_tokens": result.num_tokens}


def _options(fields: RerankBody | ScoreBody, names: PairFields) -> PairOptions:
    return PairOptions(
        truncate=fields.truncate is not False,
        truncation_side=fields.truncation_side or "right",
        instruction=fields.instruction,
        fields=names,
    )


def check_model(model: str | None, names: Collection[str]) -> None:
    """Raises MODEL_NOT_FOUND for a name that is not served."""
    if model is not None and model not in names:
        raise model_not_found(model, names)


def check_count(field: str, num_texts: int, max_inputs: int) -> None:
    """Raises INVALID_INPUT for no text, or more than the gateway's limit."""
    if num_texts < 1:
        raise invalid(f"{field} is an empty list; it needs at least 1 text.", field)
    if num_texts > max_inputs:
        raise invalid(f"{field} has {num_texts} items; the limit is {max_inputs} a request.", field)
