"""What Jina's embeddings API adds to OpenAI's form: task, embedding_type, normalized.

https://api.jina.ai/redoc. Fields that mean the same as one of OpenAI's or Hotbed's own are refused
beside it, so that there is never a choice between two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hotbed.core.errors import invalid
from hotbed.ivy.encode import Encoding
from hotbed.text.prompts import InputType

if TYPE_CHECKING:
    from hotbed.ivy.dialects.openai import EmbeddingsBody

EmbeddingType = Literal["float", "base64", "binary", "ubinary", "int8", "uint8"]
EmbeddingTypes = EmbeddingType | list[EmbeddingType]

_TASKS: dict[str, InputType] = {
    "retrieval.query": "query",
    "retrieval.passage": "document",
    "nl2code.query": "query",
    "nl2code.passage": "document",
    "code2code.query": "query",
    "code2code.passage": "document",
    "code.query": "query",
    "code.passage": "document",
    "qa.query": "query",
    "qa.passage": "document",
    "text-matching": "similarity",
    "classification": "classification",
    "separation": "clustering",
    "clustering": "clustering",
}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the request asks for, in the internal request's terms."""

    input_type: InputType | None
    prompt_name: str | None
    encoding: Encoding | None


def speaks(fields: EmbeddingsBody) -> bool:
    """Whether the request has a field that only Jina's API knows."""
    return (
        fields.task is not None
        or fields.embedding_type is not None
        or fields.normalized is not None
        or fields.late_chunking is not None
    )


def read(fields: EmbeddingsBody) -> Wishes:
    """The wishes. Raises INVALID_INPUT naming the field."""
    for ours, theirs in (
        ("encoding_format", "embedding_type"),
        ("input_type", "task"),
        ("prompt_name", "task"),
    ):
        if getattr(fields, ours) is not None and getattr(fields, theirs) is not None:
            raise invalid(f"{theirs} and {ours} mean the same: give one of them.", theirs)
    input_type: InputType | None = fields.input_type
    if fields.task is not None:
        if fields.task not in _TASKS:
            raise invalid(f"task must be one of {', '.join(_TASKS)}.", "task")
        input_type = _TASKS[fields.task]
    return Wishes(
        input_type=input_type,
        prompt_name=fields.prompt_name,
        encoding=fields.encoding_format or _one(fields.embedding_type),
    )


def _one(asked: EmbeddingTypes | None) -> Encoding | None:
    if isinstance(asked, list):
        if len(asked) != 1:
            raise invalid("embedding_type must name one type.", "embedding_type")
        return asked[0]
    return asked
