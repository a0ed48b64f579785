"""At the model's limit: one token over is cut as transformers cuts it, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from hotbed import Embedder
from hotbed.core.errors import HotbedError


@pytest.mark.parametrize("family", ["bert", "qwen3"])
@pytest.mark.parametrize("over", [-1, 0, 1])
def test_rows_around_the_limit_equal_transformers(
    request: pytest.FixtureRequest, family: str, over: int
) -> None:
    folder: Path = request.getfixturevalue(f"{family}_folder")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with Embedder(str(folder), device="cpu", num_threads=1, fast_tokenizers="off") as embedder:
        limit = embedder.info.max_tokens
        text = _text_of(tokenizer, limit + over)
        if over > 0:
            with pytest.raises(HotbedError, match=f"{limit + over} tokens, the limit is {limit}"):
                embedder.embed(text)
        got = embedder.embed(text, truncate=True, normalize=False)
        pooling = embedder.info.pooling
    # The last token of a causal model is its end token: transformers' own truncation keeps it too.
    ids = tokenizer(text, truncation=True, max_length=limit)["input_ids"]
    assert len(ids) == min(limit, limit + over)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        states = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    expected = (states[-1] if pooling == "last" else states.mean(0)).numpy()
    assert np.linalg.norm(got - expected) <= 1e-4 * np.linalg.norm(expected)


def _text_of(tokenizer: Any, num_tokens: int) -> str:
    """A text of exactly so many tokens, special tokens included."""
    text = "the"
    while (missing := num_tokens - len(tokenizer(text)["input_ids"])) > 0:
        # The longest of these that does not overshoot; the last costs one token.
        for more in (" quick fox", " the", ".", "!"):
            added = len(tokenizer(text + more)["input_ids"]) - (num_tokens - missing)
            if 0 < added <= missing:
                text += more
                break
        else:
            raise AssertionError(f"no text of {num_tokens} tokens was found")
    return text
