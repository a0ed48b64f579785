"""What a request can ask of the tokenizer, and what it gets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotbed.core.errors import invalid
from hotbed.core.ragged import Int32Array, RaggedBatch
from hotbed.text.truncation import TruncationSide


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeOptions:
    """How one request's inputs are encoded.

    Attributes:
        prefix: put before every text, and tokenised together with it.
        truncate: cut what is too long instead of refusing it.
        truncation_side: the end of the text that is cut; on the left the prefix goes first.
        max_tokens: a lower limit than the model's, special tokens included.
        add_special_tokens: put the tokenizer's own prefix and suffix around every text.

    Raises:
        HotbedError: INVALID_INPUT for another side.
    """

    prefix: str = ""
    truncate: bool = False
    truncation_side: TruncationSide = "right"
    max_tokens: int | None = None
    add_special_tokens: bool = True

    def __post_init__(self) -> None:
        if self.truncation_side not in ("left", "right"):
            raise invalid('truncation_side must be "left" or "right".', "truncation_side")

    def limit(self, *, max_tokens: int, num_special_tokens: int) -> int:
        """Longest sequence for this request, given the model's limit.

        Raises:
            HotbedError: INVALID_INPUT if the request's limit is above the model's, or leaves no
                room for a token of text beside the special tokens.
        """
        if self.max_tokens is None:
            return max_tokens
        if isinstance(self.max_tokens, bool) or not (
            num_special_tokens < self.max_tokens <= max_tokens
        ):
            raise invalid(
                f"max_tokens must be from {num_special_tokens + 1} to {max_tokens}, special tokens "
                f"included; got {self.max_tokens}.",
                "max_tokens",
            )
        return self.max_tokens


DEFAULT_OPTIONS = EncodeOptions()


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch ready for a model, one sequence an input, and how many of them were truncated."""

    batch: RaggedBatch
    num_truncated: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Every text tokenised, also those that `Tokenizer.encode` would refuse.

    Attributes:
        batch: S sequences, each cut to the limit.
        lengths: int32 [S], before the cut.
        blank: bool [S]; True where a text gave no token of its own.
        unknown: bool [S]; True where it holds a token that the model has no row for.
    """

    batch: RaggedBatch
    lengths: Int32Array
    blank: NDArray[np.bool_]
    unknown: NDArray[np.bool_]
