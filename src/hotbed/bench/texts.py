"""Real English text in mixed lengths, for measuring.

Source: the Lee background corpus (300 news items, Lee, Pincombe and Welsh 2005) that the gensim
package carries as test data; found without importing gensim.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from hotbed.core.errors import invalid


def gensim_data(name: str) -> Path:
    """A file of gensim's test data; FileNotFoundError says how to get it."""
    spec = importlib.util.find_spec("gensim")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("gensim's test data is needed: pip install 'hotbed[bench]'")
    return Path(spec.origin).parent / "test" / "test_data" / name


def mixed_texts(
    count: int, *, seed: int = 0, min_words: int = 6, max_words: int = 160
) -> list[str]:
    """`count` texts in arrival order, word counts log-uniform from `min_words` to `max_words`."""
    lines = gensim_data("lee_background.cor").read_text(encoding="utf-8").splitlines()
    words = " ".join(lines).split()
    random = np.random.default_rng(seed)
    lengths = np.exp(random.uniform(np.log(min_words), np.log(max_words + 1), count)).astype(int)
    starts = random.integers(0, len(words) - max_words, count)
    return [" ".join(words[s : s + n]) for s, n in zip(starts, lengths, strict=True)]


def corpus(path: Path | None) -> str:
    """The text that inputs are cut from: a file's, or the Lee corpus if None.

    Raises:
        HotbedError: INVALID_INPUT if the file cannot be read, or gensim is not installed.
    """
    try:
        file = gensim_data("lee_background.cor") if path is None else path
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise invalid(f"--texts: {error}", "texts") from error
