"""The one internal request, whatever dialect it came in, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from hotbed.core.output import OutputSpec
from hotbed.text.prompts import InputType


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedRequest:
    """Inputs to embed and how.

    Attributes:
        texts: the inputs as text; None if they came otherwise.
        token_arrays: the inputs as token ids; None if they came as text.
        documents: the inputs as chunks of documents, each with a row of its own; None otherwise.
        is_single: the client sent one bare input, not a list of inputs.
        spec: what the rows shall be.
        prompt_name: named prefix of the model; text only.
        input_type: a kind of input, which names a prefix too; text only.
        truncate: cut inputs that are too long instead of refusing them.
        truncation_side: which end is cut.
        max_tokens: a lower limit than the model's, special tokens included.
        max_request_tokens: a lower limit than the gateway's.
        add_special_tokens: put the tokenizer's own tokens around texts.
        names: the dialect's names for ``input`` and for fields of this record, for errors.
    """

    texts: list[str] | None
    token_arrays: list[list[int]] | None
    documents: list[list[str]] | None = None
    is_single: bool
    spec: OutputSpec
    prompt_name: str | None = None
    input_type: InputType | None = None
    truncate: bool = False
    truncation_side: Literal["left", "right"] = "right"
    max_tokens: int | None = None
    max_request_tokens: int | None = None
    add_special_tokens: bool = True
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def num_inputs(self) -> int:
        """Rows that the request is answered with."""
        if self.documents is not None:
            return sum(map(len, self.documents))
        inputs = self.texts if self.texts is not None else self.token_arrays
        assert inputs is not None, "a request has inputs of some kind: this is a bug"
        return len(inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedResult:
    """Rows of one request, in the order of its inputs.

    Attributes:
        rows: arrays [n, row width], n in all the number of inputs; read-only.
        num_tokens: tokens computed, special tokens included.
        fingerprint: short hash over all that the rows depend on besides the inputs.
        tokenize_us: time until the token ids were there.
        queue_us: longest wait of a chunk in a replica's queue.
        device_us: device time of all chunks together.
    """

    rows: list[NDArray[Any]]
    num_tokens: int
    fingerprint: str
    tokenize_us: int
    queue_us: int
    device_us: int
