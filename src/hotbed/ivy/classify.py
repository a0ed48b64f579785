"""POST /classify, vLLM's form: texts in, the probabilities of the labels out."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection
from typing import Literal

import msgspec
import numpy as np
import orjson

from hotbed.ivy.body import BodyReader
from hotbed.ivy.openai import Usage
from hotbed.ivy.rerank import (
    ModelName,
    RawScores,
    Side,
    Truncate,
    check_count,
    check_model,
    usage,
)
from hotbed.ivy.score import ScoreRequest, ScoreResult
from hotbed.text.pairs import PairFields, PairOptions


class ClassifyBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /classify."""

    input: str | list[str]
    model: ModelName = None
    raw_scores: RawScores = None
    truncate: Truncate = None
    truncation_side: Side = None


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


_read = BodyReader(ClassifyBody)


def decode_classify(body: bytes, *, names: Collection[str], max_inputs: int) -> ScoreRequest:
    """The internal request of a body.

    Raises:
        HotbedError: INVALID_INPUT naming the field; MODEL_NOT_FOUND.
    """
    fields = _read(body)
    check_model(fields.model, names)
    is_one = isinstance(fields.input, str)
    texts = [fields.input] if isinstance(fields.input, str) else fields.input
    check_count("input", len(texts), max_inputs)
    return ScoreRequest(
        queries=None,
        documents=texts,
        raw_scores=bool(fields.raw_scores),
        options=PairOptions(
            # As embeddings: a text that is cut is not what was asked about, so only if asked for.
            truncate=bool(fields.truncate),
            truncation_side=fields.truncation_side or "right",
            fields=PairFields(document="input" if is_one else "input[{}]"),
        ),
    )


def encode_classify(result: ScoreResult, model: str) -> bytes:
    """The answer's body."""
    answer = {
        "id": f"classify-{uuid.uuid4().hex}",
        "object": "list",
        "created": int(time.time()),
        "model": model,
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
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
