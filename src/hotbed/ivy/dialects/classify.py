"""POST /classify (vLLM) and /predict (TEI): texts in, scores of the model's labels out."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from hotbed.core.errors import invalid
from hotbed.ivy.answers import finish
from hotbed.ivy.body import BodyReader
from hotbed.ivy.dialects.handlers import Handlers
from hotbed.ivy.dialects.shared import (
    CacheSalt,
    Direction,
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
    is_raw,
    usage,
)
from hotbed.ivy.dialects.tei import TeiError, side_of, tei_error_reply
from hotbed.ivy.dialects.vllm import TRUNCATION_NAMES, truncation
from hotbed.ivy.http import Reply
from hotbed.ivy.routes import Route
from hotbed.ivy.score import ScoreRequest
from hotbed.ivy.work import Call
from hotbed.text.pairs import PairFields, PairOptions


class ClassifyBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /classify."""

    input: Annotated[
        str | list[str], msgspec.Meta(description="A text or a list of texts, each alone.")
    ]
    model: ModelName = None
    raw_scores: RawScores = None
    use_activation: UseActivation = None
    truncate: Truncate = None
    truncation_side: Side = None
    truncate_prompt_tokens: TruncatePromptTokens = None
    user: User = None
    priority: Priority = None
    request_id: RequestId = None
    cache_salt: CacheSalt = None


class Classification(msgspec.Struct, kw_only=True):
    """One text's scores."""

    index: int
    label: str
    """Of the highest score."""
    probs: list[float]
    """In the order of the model's labels."""
    num_classes: int


class ClassifyAnswer(msgspec.Struct, kw_only=True):
    """Answer of POST /classify, in the order of the texts."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Classification]
    usage: Usage


class PredictParameters(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """As Hugging Face's InferenceClient sends them."""

    function_to_apply: Literal["none"] | None = None
    """none: raw scores. Other functions than the model's own are not applied."""
    top_k: int | None = None
    """Only the best so many labels."""


class PredictBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /predict."""

    inputs: Annotated[
        str | list[str | list[str]],
        msgspec.Meta(
            description="A text; a list of two texts, which is one pair; or a list of lists of "
            "one text or of two."
        ),
    ]
    raw_scores: RawScores = None
    truncate: Truncate = None
    truncation_direction: Direction = None
    parameters: Annotated[
        PredictParameters | None, msgspec.Meta(description="Wishes of InferenceClient.")
    ] = None
    model: ModelName = None


class Prediction(msgspec.Struct, kw_only=True):
    """One label's score."""

    score: float
    label: str


_read_classify = BodyReader(ClassifyBody)
_read_predict = BodyReader(PredictBody)


class ClassifyRoutes(Handlers):
    """The routes' handlers."""

    def routes(self) -> list[Route]:
        return [
            Route(
                path="/v1/classify",
                aliases=("/classify",),
                operation="classify",
                summary="Label texts (vLLM).",
                answer=self.classify,
                body=ClassifyBody,
                reply=ClassifyAnswer,
            ),
            Route(
                path="/predict",
                aliases=("/v1/predict",),
                operation="teiPredict",
                summary="Label texts or pairs of texts (TEI).",
                answer=self.predict,
                body=PredictBody,
                reply=list[Prediction | list[Prediction]],
                error_reply=tei_error_reply,
                error=TeiError,
            ),
        ]

    async def classify(self, call: Call) -> Reply:
        fields = _read_classify(call.body)
        model = self._models.find(fields.model, task="score")
        is_one = isinstance(fields.input, str)
        texts = [fields.input] if isinstance(fields.input, str) else fields.input
        check_texts(len(texts), self._settings.max_inputs, "input")
        if fields.truncate is not None and fields.truncate_prompt_tokens is not None:
            raise invalid(
                "truncate and truncate_prompt_tokens mean the same: give one of them.", "truncate"
            )
        truncate, max_tokens = truncation(fields.truncate_prompt_tokens)
        if fields.truncate_prompt_tokens is None:
            truncate = self._truncates(fields.truncate)
        request = ScoreRequest(
            queries=None,
            documents=texts,
            raw_scores=is_raw(fields.raw_scores, fields.use_activation),
            options=PairOptions(
                truncate=truncate,
                truncation_side=fields.truncation_side or "right",
                max_tokens=max_tokens,
                fields=PairFields(document="input" if is_one else "input[{}]"),
            ),
            names=TRUNCATION_NAMES,
        )
        name = answer_id("classify", fields.request_id)
        call.parsed(self._metrics)
        result = await model.scores.run(request, call.caller)
        call.computed()
        answer = {
            "id": name,
            "object": "list",
            "created": int(time.time()),
            "model": model.name,
            "data": [
                {
                    "index": index,
                    "label": result.labels[int(np.argmax(scores))],
                    "probs": scores,
                    "num_classes": len(result.labels),
                }
                for index, scores in enumerate(result.scores)
            ],
            "usage": usage(result),
        }
        body = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
        return finish(call, result, body, self._metrics)

    async def predict(self, call: Call) -> Reply:
        fields = _read_predict(call.body)
        model = self._models.find(fields.model, task="score")
        firsts, seconds, is_single = _sequences(fields.inputs)
        check_texts(len(firsts), self._settings.max_inputs, "inputs")
        how = fields.parameters or PredictParameters()
        if how.top_k is not None and how.top_k < 1:
            raise invalid("parameters.top_k must be at least 1.", "parameters.top_k")
        place = "inputs" if is_single else "inputs[{}]"
        request = ScoreRequest(
            queries=None if seconds is None else firsts,
            documents=firsts if seconds is None else seconds,
            raw_scores=bool(fields.raw_scores) or how.function_to_apply == "none",
            options=PairOptions(
                truncate=self._truncates(fields.truncate),
                truncation_side=side_of(fields.truncation_direction),
                fields=PairFields(
                    query=place + ("" if seconds is None else "[0]"),
                    document=place + ("" if seconds is None else "[1]"),
                ),
            ),
        )
        call.parsed(self._metrics)
        result = await model.scores.run(request, call.caller)
        call.computed()
        rows = [_ranked(scores, result.labels)[: how.top_k] for scores in result.scores]
        body = orjson.dumps(rows[0] if is_single else rows, option=orjson.OPT_SERIALIZE_NUMPY)
        return finish(call, result, body, self._metrics)


def _sequences(
    inputs: str | list[str | list[str]],
) -> tuple[list[str], list[str] | None, bool]:
    """(first texts, second texts of pairs or None, whether it was one bare input)."""
    if isinstance(inputs, str):
        return [inputs], None, True
    if inputs and all(isinstance(item, str) for item in inputs):
        if len(inputs) != 2:
            raise invalid(
                "inputs is a list of texts, which is one pair: it must have 2. Put each of several "
                "texts into a list of its own.",
                "inputs",
            )
        first, second = inputs
        assert isinstance(first, str)
        assert isinstance(second, str)
        return [first], [second], True
    groups: list[list[str]] = []
    for index, item in enumerate(inputs):
        if not isinstance(item, list) or len(item) not in (1, 2):
            raise invalid(
                f"inputs[{index}] must be a list of one text or of two.", f"inputs[{index}]"
            )
        if len(item) != len(inputs[0]):
            raise invalid(
                f"inputs[{index}] is of another kind than inputs[0]: send texts and pairs apart.",
                f"inputs[{index}]",
            )
        groups.append(item)
    is_pairs = bool(groups) and len(groups[0]) == 2
    return [group[0] for group in groups], [g[1] for g in groups] if is_pairs else None, False


def _ranked(scores: NDArray[np.float32], labels: tuple[str, ...]) -> list[dict[str, Any]]:
    """The labels by falling score, as TEI lists them."""
    order = np.argsort(-scores, kind="stable").tolist()
    return [{"score": scores[index], "label": labels[index]} for index in order]
