"""POST /score, vLLM's form for pairs of texts; the answer keeps their order."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import msgspec
import orjson

from hotbed.core.errors import invalid
from hotbed.ivy.answers import finish
from hotbed.ivy.body import BodyReader
from hotbed.ivy.dialects.handlers import Handlers
from hotbed.ivy.dialects.shared import (
    CacheSalt,
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
from hotbed.ivy.score import ScoreRequest
from hotbed.ivy.settings import IvySettings
from hotbed.ivy.work import Call
from hotbed.text.pairs import PairFields, PairOptions

# The names that vLLM's versions have had for the two sides.
_FORMS = (
    ("text_1", "text_2"),
    ("queries", "documents"),
    ("queries", "items"),
    ("data_1", "data_2"),
)
Texts = Annotated[
    str | list[str] | None, msgspec.Meta(description="One side of the pairs; a text or a list.")
]


class ScoreBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /score: one of the four pairs of names for the texts."""

    text_1: Texts = None
    text_2: Texts = None
    queries: Texts = None
    documents: Texts = None
    items: Texts = None
    data_1: Texts = None
    data_2: Texts = None
    model: ModelName = None
    raw_scores: RawScores = None
    use_activation: UseActivation = None
    instruction: Instruction = None
    truncate: Truncate = None
    truncation_side: Side = None
    truncate_prompt_tokens: TruncatePromptTokens = None
    max_tokens_per_doc: MaxTokensPerDoc = None
    user: User = None
    priority: Priority = None
    request_id: RequestId = None
    cache_salt: CacheSalt = None


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


_read = BodyReader(ScoreBody)


class ScoreRoute(Handlers):
    """The route's handler."""

    def routes(self) -> list[Route]:
        return [
            Route(
                path="/v1/score",
                aliases=("/score",),
                operation="score",
                summary="Score pairs of texts (vLLM).",
                answer=self.post,
                body=ScoreBody,
                reply=ScoreAnswer,
            )
        ]

    async def post(self, call: Call) -> Reply:
        fields = _read(call.body)
        model = self._models.find(fields.model, task="score")
        request = to_request(fields, self._settings)
        name = answer_id("score", fields.request_id)
        call.parsed(self._metrics)
        result = await model.scores.run(request, call.caller)
        call.computed()
        answer = {
            "id": name,
            "object": "list",
            "created": int(time.time()),
            "model": model.name,
            "data": [
                {"index": index, "object": "score", "score": score}
                for index, score in enumerate(result.relevance)
            ],
            "usage": usage(result),
        }
        body = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
        return finish(call, result, body, self._metrics)


def to_request(fields: ScoreBody, settings: IvySettings) -> ScoreRequest:
    """The internal request: one text with each of several, or as many as those.

    Raises:
        HotbedError: INVALID_INPUT naming the field.
    """
    first, second = _form(fields)
    firsts, seconds = getattr(fields, first), getattr(fields, second)
    documents = [seconds] if isinstance(seconds, str) else seconds
    check_texts(len(documents), settings.max_inputs, second)
    is_one = isinstance(firsts, str)
    if not is_one:
        check_texts(len(firsts), settings.max_inputs, first)
        if len(firsts) not in (1, len(documents)):
            raise invalid(
                f"{first} has {len(firsts)} texts and {second} {len(documents)}: give one {first} "
                f"for all, or as many as {second}.",
                first,
            )
    if fields.truncate is not None and fields.truncate_prompt_tokens is not None:
        raise invalid(
            "truncate and truncate_prompt_tokens mean the same: give one of them.", "truncate"
        )
    truncate, max_tokens = truncation(fields.truncate_prompt_tokens)
    if fields.truncate_prompt_tokens is None:
        truncate = settings.auto_truncate if fields.truncate is None else fields.truncate
    max_document_tokens = check_tokens_per_doc(fields.max_tokens_per_doc)
    if max_document_tokens is not None:
        truncate = fields.truncate is not False
    return ScoreRequest(
        queries=firsts if is_one or len(firsts) > 1 else firsts[0],
        documents=documents,
        raw_scores=is_raw(fields.raw_scores, fields.use_activation),
        options=PairOptions(
            truncate=truncate,
            truncation_side=fields.truncation_side or "right",
            max_tokens=max_tokens,
            max_document_tokens=max_document_tokens,
            instruction=fields.instruction,
            fields=PairFields(
                query=first if is_one else first + "[{}]",
                document=second if isinstance(seconds, str) else second + "[{}]",
            ),
        ),
        names=TRUNCATION_NAMES,
    )


def _form(fields: ScoreBody) -> tuple[str, str]:
    sides = {name for form in _FORMS for name in form}
    given = {name for name in sides if getattr(fields, name) is not None}
    for form in _FORMS:
        if given == set(form):
            return form
    raise invalid(
        "Give the two sides of the pairs as text_1 and text_2, queries and documents, queries and "
        "items, or data_1 and data_2.",
        "text_1",
    )
