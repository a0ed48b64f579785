"""The Reranker against sentence-transformers' CrossEncoder on seeded random checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from transformers import AutoModelForCausalLM, AutoTokenizer

from hotbed import Embedder, Reranker
from hotbed.bulk import windows
from hotbed.cli import main
from hotbed.core.errors import HotbedError
from hotbed.text.qwen3_reranker import PREFIX, SUFFIX
from tests.support.checkpoints import edit_json
from tests.support.scorers import (
    make_bert_scorer,
    make_family_scorer,
    make_mxbai_reranker,
    make_qwen3_classifier,
    make_qwen3_reranker,
    make_roberta_scorer,
)

MAX_RELATIVE_ERROR = 1e-4
MXBAI_START = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    "<|im_end|>\n<|im_start|>user\n"
)
MXBAI_TASK = (
    "You are a search relevance expert who evaluates how well documents match search queries. For"
    " each query-document pair, carefully analyze the semantic relationship between them, then"
    " provide your binary relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:"
)
MXBAI_END = "<|im_end|>\n<|im_start|>assistant\n"
QUERY = "the fast cat"
DOCUMENTS = [f"{w} document {'is ' * (i % 9)}long" for i, w in enumerate(["a", "the", "of"] * 10)]
PAIRS = [(f"{QUERY} {i % 3}", document) for i, document in enumerate(DOCUMENTS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert_scorer(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def reranker(folder: Path) -> Iterator[Reranker]:
    with Reranker(str(folder), num_threads=1) as reranker:
        yield reranker


@pytest.mark.parametrize("saved_by_them", [False, True])
@pytest.mark.parametrize("labels", [1, 3])
def test_scores_are_the_cross_encoders(tmp_path: Path, labels: int, saved_by_them: bool) -> None:
    """Their default for several labels is no activation; what their files say is kept."""
    folder = make_bert_scorer(tmp_path / "m", labels=labels)
    theirs = CrossEncoder(str(folder))
    if saved_by_them:
        folder = tmp_path / "saved"
        theirs.save_pretrained(str(folder))
    expected = theirs.predict(PAIRS)
    with Reranker(str(folder), num_threads=1) as reranker:
        raw = labels > 1 and not saved_by_them
        found = reranker.predict(PAIRS, raw_scores=raw)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=MAX_RELATIVE_ERROR, atol=1e-6)
        one = reranker.predict(PAIRS[4], raw_scores=raw)
        np.testing.assert_allclose(one, expected[4], rtol=MAX_RELATIVE_ERROR, atol=1e-6)


@pytest.mark.parametrize("model_type", ["modernbert", "distilbert", "mpnet", "deberta-v2"])
def test_relatives_of_bert_are_the_cross_encoders(tmp_path: Path, model_type: str) -> None:
    """Whole paths: the tokenizer's pairs without token types, positions, window, head."""
    folder = make_family_scorer(tmp_path / "m", model_type)
    edit_json(folder / "tokenizer_config.json", model_max_length=90)
    expected = CrossEncoder(str(folder)).predict(PAIRS, batch_size=1)
    with Reranker(str(folder), num_threads=1) as reranker:
        np.testing.assert_allclose(reranker.predict(PAIRS), expected, rtol=MAX_RELATIVE_ERROR)


def test_electras_pairs_have_token_types_as_berts(tmp_path: Path) -> None:
    folder = make_family_scorer(tmp_path / "reranker", "electra")
    names = ["input_ids", "token_type_ids", "attention_mask"]
    edit_json(
        folder / "tokenizer_config.json",
        tokenizer_class="ElectraTokenizer",
        model_input_names=names,
        **{f"{t.lower()}_token": f"[{t}]" for t in ("UNK", "CLS", "SEP", "PAD", "MASK")},
    )
    expected = CrossEncoder(str(folder)).predict(PAIRS)
    with Reranker(str(folder), num_threads=1) as reranker:
        found = reranker.predict(PAIRS)
    np.testing.assert_allclose(found, expected, rtol=MAX_RELATIVE_ERROR, atol=1e-6)
    edit_json(folder / "tokenizer_config.json", model_input_names=names[:1])
    with Reranker(str(folder), num_threads=1) as reranker:
        assert np.abs(reranker.predict(PAIRS) - expected).max() > 1e-3, "types tell"


def test_xlm_r_reranks_as_the_cross_encoder_does(tmp_path: Path) -> None:
    """bge-reranker-v2-m3's kind: pairs without token types, positions behind the pad id."""
    folder = make_roberta_scorer(tmp_path / "m")
    expected = CrossEncoder(str(folder)).predict(PAIRS)
    with Reranker(str(folder), num_threads=1) as reranker:
        found = reranker.predict(PAIRS)
    np.testing.assert_allclose(found, expected, rtol=MAX_RELATIVE_ERROR, atol=1e-6)


@pytest.mark.parametrize("make", [make_qwen3_reranker, make_qwen3_classifier])
def test_qwens_template_is_put_around_plain_texts(tmp_path: Path, make: Any) -> None:
    """Without it London stands above Paris (Qwen3-Embedding 71); they leave it to the caller."""
    folder = make(tmp_path / "reranker")
    theirs = CrossEncoder(str(folder))
    theirs.tokenizer.pad_token = "<|endoftext|>"
    theirs.config.pad_token_id = theirs.tokenizer.pad_token_id
    instruction = "Given a web search query, retrieve relevant passages that answer the query"
    texts = [
        (f"{PREFIX}<Instruct>: {instruction}\n<Query>: {q}\n", f"<Document>: {d}{SUFFIX}")
        for q, d in PAIRS
    ]
    # Logits: with random weights this size scores are 0 or 1.
    expected = theirs.predict(texts, batch_size=1, activation_fn=torch.nn.Identity())
    with Reranker(str(folder), num_threads=1) as reranker:
        found = reranker.predict(PAIRS, raw_scores=True)
        np.testing.assert_allclose(found, expected, rtol=MAX_RELATIVE_ERROR)
        other = reranker.predict(PAIRS, raw_scores=True, instruction="find the opposite")
        assert np.abs(other - expected).max() > 1e-3


@pytest.mark.parametrize("instruction", [None, "prefer short ones"])
def test_mxbai_rerank_scores_as_its_own_package_does(
    tmp_path: Path, instruction: str | None
) -> None:
    """Pieces tokenised each by itself, "1" less "0" at the last token: mxbai_rerank 0.1.6."""
    folder = make_mxbai_reranker(tmp_path / "mxbai-rerank-base-v2")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def ids(*texts: str) -> list[int]:
        return [i for t in texts for i in tokenizer(t, add_special_tokens=False)["input_ids"]]

    one, zero = ids("1", "0")
    expected = []
    for query, document in PAIRS[:6]:
        asked = f"query: {query}"
        if instruction is not None:
            asked = f"instruction: {instruction}\n{asked}"
        row = ids(MXBAI_START, asked, "\n", f"document: {document}", "\n", MXBAI_TASK, MXBAI_END)
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([row])).logits[0, -1]
        expected.append(float(logits[one] - logits[zero]))
    with Reranker(str(folder), num_threads=1) as reranker:
        found = reranker.predict(PAIRS[:6], raw_scores=True, instruction=instruction)
        long = reranker.predict((QUERY, "is " * 2000))
    np.testing.assert_allclose(found, expected, rtol=MAX_RELATIVE_ERROR, atol=1e-5)
    assert np.isfinite(long)


def test_a_logit_score_folder_is_read(tmp_path: Path) -> None:
    """The tokens of sentence-transformers' LogitScore module, not the words yes and no."""
    folder = make_qwen3_reranker(tmp_path / "m")
    transformer = Transformer(str(folder), transformer_task="text-generation")
    theirs = CrossEncoder(modules=[transformer, LogitScore(true_token_id=7, false_token_id=9)])
    saved = tmp_path / "saved"
    theirs.save_pretrained(str(saved))
    # What their save does to the tokenizer is not the matter here.
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (saved / name).write_bytes((folder / name).read_bytes())
    with Reranker(str(saved), num_threads=1) as reranker:
        score = reranker.predict(PAIRS[:1], raw_scores=True)
        ids = reranker._pairs.encode(*map(list, zip(*PAIRS[:1], strict=True))).batch.token_ids
    with torch.inference_mode():
        model = theirs[0].model
        logits = model(input_ids=torch.from_numpy(ids.copy()).long()[None]).logits[0, -1]
    np.testing.assert_allclose(score, [float(logits[7] - logits[9])], rtol=MAX_RELATIVE_ERROR)


def test_rank_sorts_and_cuts(reranker: Reranker) -> None:
    scores = reranker.predict([(QUERY, d) for d in DOCUMENTS])
    order = np.argsort(-scores, kind="stable").tolist()
    ranked = reranker.rank(QUERY, DOCUMENTS)
    assert [r.index for r in ranked] == order
    assert [r.document for r in ranked] == [DOCUMENTS[i] for i in order]
    np.testing.assert_allclose([r.score for r in ranked], scores[order], rtol=1e-6)
    assert reranker.rank(QUERY, DOCUMENTS, top_k=2) == ranked[:2]


def test_order_is_kept_over_windows(reranker: Reranker, monkeypatch: pytest.MonkeyPatch) -> None:
    together = reranker.predict(PAIRS)
    monkeypatch.setattr(windows, "WINDOW_INPUTS", 7)
    np.testing.assert_allclose(reranker.predict(PAIRS), together, rtol=1e-5)


@pytest.mark.parametrize(
    ("pairs", "param"),
    [
        ([("a", "b"), ("a", " ")], "pairs[1][1]"),
        ([("a", "b"), ("", "b")], "pairs[1][0]"),
        ([("a", "b"), ("a", "b", "c")], "pairs[1]"),
        (["ab"], "pairs[0]"),
        ([("a " * 200, "b")], "pairs[0][0]"),
    ],
)
def test_a_bad_pair_is_named(reranker: Reranker, pairs: Any, param: str) -> None:
    with pytest.raises(HotbedError) as caught:
        reranker.predict(pairs)
    assert caught.value.param == param


def test_a_bad_pair_is_named_in_a_later_window(
    reranker: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "WINDOW_INPUTS", 4)
    with pytest.raises(HotbedError) as caught:
        reranker.predict([*PAIRS[:9], ("a", "")])
    assert caught.value.param == "pairs[9][1]"


def test_texts_alone_are_classified(tmp_path: Path) -> None:
    folder = make_bert_scorer(tmp_path / "m", labels=3)
    theirs = CrossEncoder(str(folder))
    with Reranker(str(folder), num_threads=1) as reranker:
        scores = reranker.classify(DOCUMENTS[:4])
        logits = reranker.classify(DOCUMENTS[:4], raw_scores=True)
        with pytest.raises(HotbedError, match="3 labels"):
            reranker.rank(QUERY, DOCUMENTS)
    encoded = theirs.tokenizer(DOCUMENTS[:4], padding=True, return_tensors="pt")
    expected = theirs.model(**encoded).logits.detach()
    np.testing.assert_allclose(logits, expected.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scores, expected.softmax(dim=-1).numpy(), rtol=1e-4)


def test_a_model_of_the_other_task_is_refused(folder: Path) -> None:
    with pytest.raises(HotbedError, match="cannot be used for the task 'embed'"):
        Embedder(str(folder))


def test_the_command_prints_the_best_first(
    folder: Path, reranker: Reranker, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    command = ["rerank", str(folder), "--query", QUERY, "--top-k", "2", "--threads", "1"]
    with pytest.raises(SystemExit) as ended:
        main([*command, *DOCUMENTS])
    assert ended.value.code == 0
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    expected = reranker.rank(QUERY, DOCUMENTS, top_k=2)
    assert [line["index"] for line in lines] == [r.index for r in expected]
    assert [line["document"] for line in lines] == [r.document for r in expected]


def test_how_it_computes_can_be_chosen_as_for_an_embedder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["rerank", str(folder), "--query", QUERY, "a document", "--threads", "1"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--device", "cpu", "--dtype", "bfloat16", "--attention", "sdpa"])
    assert ended.value.code == 0
    half = json.loads(capsys.readouterr().out)["score"]
    with Reranker(str(folder), num_threads=1, dtype="float32", attention="sdpa") as reranker:
        exact = float(reranker.predict((QUERY, "a document")))
    assert half != exact
    assert half == pytest.approx(exact, abs=0.02)


def test_an_attention_that_cannot_run_here_is_refused_not_replaced(folder: Path) -> None:
    with pytest.raises(HotbedError, match="fa4"):
        Reranker(str(folder), device="cpu", attention="fa4")
