"""Fields and facts that several dialects of scoring have."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from hotbed.core.errors import invalid
from hotbed.ivy.inputs import check_count
from hotbed.ivy.score import ScoreResult

ModelName = Annotated[
    str | None, msgspec.Meta(description="A name from /v1/models; absent: the first model.")
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
Instruction = Annotated[
    str | None,
    msgspec.Meta(description="For models whose template has one; absent: the model's own."),
]
User = Annotated[str | None, msgspec.Meta(description="Accepted and not used.")]
Priority = Annotated[int | None, msgspec.Meta(description="Accepted and not used.")]


class Usage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Tokens that were computed, special tokens included; of pairs the query once a document."""

    prompt_tokens: int
    total_tokens: int


def usage(result: ScoreResult) -> dict[str, int]:
    """The same of a result."""
    return {"prompt_tokens": result.num_tokens, "total_tokens": result.num_tokens}


def check_texts(num_texts: int, max_inputs: int, field: str) -> None:
    """Raises INVALID_INPUT for no text, or more than the gateway's limit."""
    if num_texts < 1:
        raise invalid(f"{field} is an empty list; it needs at least 1 text.", field)
    check_count(num_texts, max_inputs, field)


def is_raw(raw_scores: bool | None, use_activation: bool | None) -> bool:
    """Whether logits are asked for, in either word."""
    if raw_scores is not None and use_activation is not None:
        raise invalid(
            "raw_scores and use_activation mean the same: give one of them.", "use_activation"
        )
    return bool(raw_scores) or use_activation is False
