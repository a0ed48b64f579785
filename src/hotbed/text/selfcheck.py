"""Whether a fast backend may stand in for the reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hotbed.text.backend import Backend

_NUM_ALONE = 100


def num_differences(reference: Backend, candidate: Backend, texts: Sequence[str]) -> int:
    """Number of texts for which the candidate's ids are not exactly the reference's.

    Compared with and without special tokens in one batch, and the first ones once more each alone,
    since libraries take other paths for one text than for many.
    """
    different: set[int] = set()
    for add_special_tokens in (True, False):
        expected = reference.encode(texts, add_special_tokens=add_special_tokens)
        actual = candidate.encode(texts, add_special_tokens=add_special_tokens)
        if actual.num_sequences != len(texts):
            return len(texts)
        for i in range(len(texts)):
            if not np.array_equal(expected.sequence(i), actual.sequence(i)):
                different.add(i)
        for i in range(min(_NUM_ALONE, len(texts))):
            alone = candidate.encode([texts[i]], add_special_tokens=add_special_tokens)
            if not np.array_equal(expected.sequence(i), alone.token_ids):
                different.add(i)
    return len(different)
