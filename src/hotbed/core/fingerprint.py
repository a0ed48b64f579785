"""What made an answer, as a short hash: indexes of one recipe are never asked with another's."""

from __future__ import annotations

import functools
import hashlib


@functools.lru_cache(maxsize=256)
def answer_fingerprint(*parts: str | int | bool) -> str:
    """16 hexadecimal digits over all that an answer depends on besides the inputs, in a fixed
    order.
    """
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def row_fingerprint(
    *,
    model: str,
    tokenizer: str,
    prompt: str,
    dimensions: int,
    dtype: str,
    normalize: bool,
    unusual: tuple[str, ...] = (),
) -> str:
    """Of dense rows, from `hotbed embed` and from the gateway alike.

    Args:
        model: fingerprint of the model.
        tokenizer: fingerprint of the tokenizer.
        prompt: before every text.
        dimensions: of the rows.
        dtype: of the rows.
        normalize: whether they are L2-normalised.
        unusual: what only some requests ask for, by name; nothing for all others, whose
            fingerprints stay what they are when another such wish becomes known.
    """
    return answer_fingerprint(model, tokenizer, prompt, dimensions, dtype, normalize, *unusual)
