"""Fields and facts that several dialects of scoring have."""

from __future__ import annotations

import uuid
from typing import Annotated, Literal

import msgspec

from hotbed.core.errors import invalid
from hotbed.ivy.inputs import check_count
from hotbed.ivy.score import ScoreResult

MAX_REQUEST_ID_CHARS = 256

ModelName = Annotated[
    str | None,
    msgspec.Meta(description="A name from /v1/models; absent: the first model that scores."),
]
Truncate = Annotated[
    bool | None,
    msgspec.Meta(
        description="Cut what is too long, of pairs the document; absent or false: it is an error."
    ),
]
Side = Annotated[
    Literal["left", "right"] | None,
    msgspec.Meta(description="The end that is cut; absent: right."),
]
Direction = Annotated[
    Literal["Left", "Right", "left", "right"] | None,
    msgspec.Meta(description="TEI: the end that is cut; absent: Right."),
]
RawScores = Annotated[
    bool | None, msgspec.Meta(description="Logits instead of scores; absent: false.")
]
UseActivation = Annotated[
    bool | None, msgspec.Meta(description="vLLM: false is raw_scores true, by another name.")
]
TruncatePromptTokens = Annotated[
    int | None,
    msgspec.Meta(description="vLLM: cut to so many tokens in all; -1: to the model's limit."),
]
MaxTokensPerDoc = Annotated[
    int | None,
    msgspec.Meta(
        description="Cohere, vLLM: cut each document to so many tokens of its own, and to what the "
        "model takes; absent or 0: no such limit."
    ),
]
Instruction = Annotated[
    str | None,
    msgspec.Meta(description="For models whose template has one; absent: the model's own."),
]
User = Annotated[str | None, msgspec.Meta(description="Accepted and not used.")]
Priority = Annotated[int | None, msgspec.Meta(description="Accepted and not used.")]
RequestId = Annotated[
    str | None, msgspec.Meta(description="vLLM: the answer's id ends with it; absent: a new one.")
]
CacheSalt = Annotated[
    str | None,
    msgspec.Meta(description="vLLM: accepted and not used; no answer is made from a cache."),
]


class Usage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Tokens that were computed, special tokens included; of pairs the query once a document."""

    prompt_tokens: int
    total_tokens: int


def usage(result: ScoreResult) -> dict[str, int]:
    """The same of a result."""
    return {"prompt_tokens": result.num_tokens, "total_tokens": result.num_tokens}


def answer_id(prefix: str, request_id: str | None = None) -> str:
    """The id of an answer.

    Raises:
        HotbedError: INVALID_INPUT for a `request_id` that is empty or very long.
    """
    if request_id is None:
        return f"{prefix}-{uuid.uuid4().hex}"
    if not 0 < len(request_id) <= MAX_REQUEST_ID_CHARS:
        raise invalid(f"request_id must have 1 to {MAX_REQUEST_ID_CHARS} characters.", "request_id")
    return f"{prefix}-{request_id}"


def check_texts(num_texts: int, max_inputs: int, field: str) -> None:
    """Raises INVALID_INPUT for no text, or more than the gateway's limit."""
    if num_texts < 1:
        raise invalid(f"{field} is an empty list; it needs at least 1 text.", field)
    check_count(num_texts, max_inputs, field)


def check_tokens_per_doc(max_tokens_per_doc: int | None) -> int | None:
    """The limit, None for none. Raises INVALID_INPUT below 0."""
    if max_tokens_per_doc is not None and max_tokens_per_doc < 0:
        raise invalid("max_tokens_per_doc must be at least 0 (no limit).", "max_tokens_per_doc")
    return max_tokens_per_doc or None


def is_raw(raw_scores: bool | None, use_activation: bool | None) -> bool:
    """Whether logits are asked for, in either word."""
    if raw_scores is not None and use_activation is not None:
        raise invalid(
            "raw_scores and use_activation mean the same: give one of them.", "use_activation"
        )
    return bool(raw_scores) or use_activation is False
