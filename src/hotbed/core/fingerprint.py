"""What made an answer, as a short hash: indexes of one recipe are never asked with another's."""

from __future__ import annotations

import functools
import hashlib


@functools.lru_cache(maxsize=256)
def answer_fingerprint(*parts: str | int | bool) -> str:
    """16 hexadecimal digits over all that rows depend on besides the inputs, in a fixed order.

    For rows of an embedder: the model's and the tokenizer's fingerprint, the prompt, dimensions,
    dtype and whether they are normalised. `hotbed embed` and the gateway give the same.
    """
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
