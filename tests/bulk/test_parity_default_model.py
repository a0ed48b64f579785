"""The default model against sentence-transformers in fp32: 200 varied texts, alone and mixed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from hotbed import Embedder
from hotbed.bench.texts import mixed_texts
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.defaults import DEFAULT_MODEL

pytestmark = pytest.mark.weights

MIN_COSINE = 0.99999

ODD_TEXTS = [
    ".",
    "a",
    "?!",
    "\u200bzero width\u200b",
    " leading and trailing space ",
    "line\nbreaks\r\nand\ttabs",
    "MiXeD CaSe and ÀCCÉNTS naïve café",
    "🙂",
    "family 👨\u200d👩\u200d👧\u200d👦 and flags 🇩🇪🇯🇵",
    "Zürich, São Paulo, Kraków, Đà Nẵng",
    "日本語のテキストです。",
    "中文文本,没有空格",
    "한국어 문장입니다",
    "Это предложение на русском языке.",
    "هذه جملة باللغة العربية",
    "यह एक हिंदी वाक्य है",
    "[CLS] special [SEP] tokens [MASK] in [PAD] text [UNK]",
    "[sep][sep]",
    "##ing ##ed",
    "a" * 150,
    "supercalifragilisticexpialidocious",
    "e\u0301 combining and é composed",
    "ﬁ ligature ½ fraction ①",
    "def f(x): return x ** 2  # code",
    "https://example.org/a?b=c&d=%20e#f",
    "1234567890 3.14159 1,000,000 0x1F",
    "NUL \x00 inside and \x07 bell",
    "word " * 400,
    "語" * 300,
    "𝓾𝓷𝓲𝓬𝓸𝓭𝓮 math letters",
]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [*ODD_TEXTS, *mixed_texts(200 - len(ODD_TEXTS), seed=1, max_words=300)]


@pytest.fixture(scope="module")
def embedder() -> Iterator[Embedder]:
    with Embedder() as made:
        yield made


@pytest.fixture(scope="module")
def expected(texts: list[str]) -> np.ndarray:
    model = SentenceTransformer(str(load_checkpoint(DEFAULT_MODEL).folder), device="cpu")
    return model.encode(texts, batch_size=1, show_progress_bar=False)


def test_in_mixed_batches(embedder: Embedder, texts: list[str], expected: np.ndarray) -> None:
    assert len(texts) == 200
    rows = embedder.embed(texts, truncate=True)
    assert (rows * expected).sum(1).min() >= MIN_COSINE


def test_alone(embedder: Embedder, texts: list[str], expected: np.ndarray) -> None:
    rows = np.stack([embedder.embed(text, truncate=True) for text in texts])
    assert (rows * expected).sum(1).min() >= MIN_COSINE


@pytest.mark.parametrize("num_tokens", [1, 2, 255, 256])
def test_at_the_limit_without_truncation(embedder: Embedder, num_tokens: int) -> None:
    """254 words and two special tokens fit in 256; `truncate` changes nothing up to there."""
    words = max(1, num_tokens - 2)
    text = "cat " * words
    np.testing.assert_array_equal(embedder.embed(text), embedder.embed(text, truncate=True))
