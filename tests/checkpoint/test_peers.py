"""The files mean to Hotbed what they mean to the libraries that write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hotbed.checkpoint.load import load_checkpoint
from tests.support.checkpoints import edit_json, make_bert, make_qwen3

Maker = Callable[[Path], Path]
MAKERS: dict[str, Maker] = {
    "bert": make_bert,
    "bert-sharded-prefix": lambda f: make_bert(f, sharded=True, prefix="bert."),
    "bert-cls": lambda f: make_bert(f, pooling="cls", normalize=False, max_seq_length=None),
    "bert-bare": lambda f: make_bert(f, sentence_transformers=False),
    "qwen3": make_qwen3,
    "qwen3-prefix": lambda f: make_qwen3(f, prefix="model."),
    "qwen3-bidirectional": lambda f: make_qwen3(f, causal=False),
    "qwen3-bare": lambda f: make_qwen3(f, sentence_transformers=False),
    "qwen3-bidirectional-bare": lambda f: make_qwen3(f, causal=False, sentence_transformers=False),
    "qwen3-model-bare": lambda f: _as_qwen3_model(make_qwen3(f, sentence_transformers=False)),
}
NAMES = {"mean": "mean", "cls": "cls", "lasttoken": "last"}


def _as_qwen3_model(folder: Path) -> Path:
    edit_json(folder / "config.json", architectures=["Qwen3Model"])
    return folder


@pytest.fixture(params=MAKERS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return MAKERS[request.param](tmp_path / "m")


def test_the_tiny_models_are_whole_in_transformers(folder: Path) -> None:
    """Else a parity test against them would compare random weights."""
    from transformers import AutoModel

    _, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]


def test_pooling_and_limit_agree_with_sentence_transformers(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    ours = load_checkpoint(str(folder))
    kinds = [type(module).__name__ for module in theirs]
    assert NAMES[theirs[1].pooling_mode] == ours.pooling.pooling
    assert ("Normalize" in kinds) is ours.pooling.normalize
    assert theirs.max_seq_length == ours.max_tokens


@pytest.mark.parametrize("make", [make_bert, make_qwen3])
def test_what_the_installed_version_saves_is_read_alike(make: Maker, tmp_path: Path) -> None:
    """Module types, pooling keys and the place of the length limit move between versions."""
    from sentence_transformers import SentenceTransformer

    before = load_checkpoint(str(make(tmp_path / "m")))
    model = SentenceTransformer(before.name, device="cpu", local_files_only=True)
    model.save(str(tmp_path / "saved"))
    after = load_checkpoint(str(tmp_path / "saved"))
    assert after.config == before.config
    assert (after.pooling, after.max_tokens) == (before.pooling, before.max_tokens)
    assert {n: t.shape for n, t in after.tensors.items()} == {
        n: t.shape for n, t in before.tensors.items()
    }
