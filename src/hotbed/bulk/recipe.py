"""What the vectors of a job depend on besides its texts, and the short hash of it."""

from __future__ import annotations

import msgspec

from hotbed.core.fingerprint import row_fingerprint

METADATA_KEY = b"hotbed.recipe"
"""Under which each Parquet file keeps its recipe, as JSON."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """Vectors of two recipes do not belong into one index.

    Attributes:
        model: name it was asked for by.
        prompt: put before every text.
        dimensions: of a vector.
        dtype: of the numbers, as `OutputDtype` names it.
        normalize: whether the vectors are L2-normalised.
        fingerprint: short hash over model, tokenizer, prompt, dimensions, dtype and normalisation;
            the same that `hotbed serve` sends with its answers.
    """

    model: str
    prompt: str
    dimensions: int
    dtype: str
    normalize: bool
    fingerprint: str


def make_recipe(
    *,
    model: str,
    model_fingerprint: str,
    tokenizer_fingerprint: str,
    prompt: str,
    dimensions: int,
    dtype: str,
    normalize: bool,
) -> Recipe:
    """The recipe with its fingerprint."""
    return Recipe(
        model=model,
        prompt=prompt,
        dimensions=dimensions,
        dtype=dtype,
        normalize=normalize,
        fingerprint=row_fingerprint(
            model=model_fingerprint,
            tokenizer=tokenizer_fingerprint,
            prompt=prompt,
            dimensions=dimensions,
            dtype=dtype,
            normalize=normalize,
        ),
    )
