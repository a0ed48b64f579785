"""What Perplexity's embeddings API adds to OpenAI's form.

https://docs.perplexity.ai/api-reference/embeddings-post: at most 512 texts and 120,000 tokens a
request, rows as base64 of int8 (the default) or of bits with the first dimension in the least
significant one, and a usage with the cost, which is nothing here.
"""

from __future__ import annotations

from typing import Final

from hotbed.core.errors import invalid
from hotbed.ivy.encode import Encoding
from hotbed.ivy.inputs import check_count

MAX_INPUTS: Final = 512
MAX_REQUEST_TOKENS: Final = 120_000
DEFAULT_ENCODING: Final[Encoding] = "base64_int8"
COST: Final = {"input_cost": 0.0, "total_cost": 0.0, "currency": "USD"}


def speaks(encoding: Encoding | None, *, is_pplx_model: bool, is_jina: bool = False) -> bool:
    """Whether a request speaks Perplexity's dialect.

    Args:
        encoding: as asked for.
        is_pplx_model: the model is one of Perplexity's (its int8 recipe is).
        is_jina: the request has fields that only Jina's dialect knows.
    """
    if encoding is None:
        return is_pplx_model and not is_jina
    return encoding in ("base64_int8", "base64_binary")


def check(texts: list[str] | None) -> None:
    """Raises INVALID_INPUT for token ids, or more texts than the API takes."""
    if texts is None:
        raise invalid(
            "input must be a text or a list of texts: Perplexity's API takes no token ids. With "
            'encoding_format "float" or "base64" they are taken.',
            "input",
        )
    check_count(len(texts), MAX_INPUTS, "input")
