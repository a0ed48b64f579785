"""Pooling, normalisation and prompts, as the model's own files say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hotbed.checkpoint.load import load_checkpoint
from hotbed.checkpoint.records import Checkpoint, PoolingConfig
from tests.checkpoint.errors import refused
from tests.support.checkpoints import edit_json, make_bert, make_qwen3, write_json


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return make_bert(tmp_path / "m", prompts={"query": "query: "})


def _load(folder: Path) -> Checkpoint:
    return load_checkpoint(str(folder))


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
@pytest.mark.parametrize("normalize", [True, False])
def test_pooling_comes_from_the_files(tmp_path: Path, pooling: Any, normalize: bool) -> None:
    """Mean where the files say CLS: cosine .61 to the real vectors."""
    folder = make_bert(tmp_path / "m", pooling=pooling, normalize=normalize)
    assert _load(folder).pooling == PoolingConfig(pooling=pooling, normalize=normalize)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("mean", "mean"), ("cls", "cls"), ("lasttoken", "last"), (["cls"], "cls")],
)
def test_the_newer_form_of_pooling(bert: Path, value: object, expected: str) -> None:
    config = {"embedding_dimension": 64, "pooling_mode": value, "include_prompt": True}
    write_json(bert / "1_Pooling" / "config.json", config)
    assert _load(bert).pooling.pooling == expected


def test_the_newer_form_wins_over_the_older_flags(bert: Path) -> None:
    """As in sentence-transformers."""
    edit_json(bert / "1_Pooling" / "config.json", pooling_mode="cls")
    assert _load(bert).pooling.pooling == "cls"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"pooling_mode_max_tokens": True}, ['"mean"', '"max"']),
        ({"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True}, ['is "max"']),
        ({"pooling_mode": "weightedmean"}, ['is "weightedmean"', '"lasttoken"']),
        ({"pooling_mode": ["cls", "mean"]}, ['["cls", "mean"]']),
        ({"pooling_mode": "mean_sqrt_len_tokens"}, ["mean_sqrt_len_tokens"]),
    ],
)
def test_pooling_that_is_not_computed_is_refused(
    bert: Path, changes: dict[str, object], says: list[str]
) -> None:
    edit_json(bert / "1_Pooling" / "config.json", **changes)
    with refused("1_Pooling", "pooling_mode", 'supported: "mean", "cls", "lasttoken"', *says):
        _load(bert)


def test_a_pooling_file_of_another_model_is_refused(bert: Path) -> None:
    edit_json(bert / "1_Pooling" / "config.json", word_embedding_dimension=768)
    with refused("word_embedding_dimension is 768", "hidden_size 64"):
        _load(bert)


def test_prompts_that_must_stay_out_of_the_pooling_are_refused(bert: Path) -> None:
    edit_json(bert / "1_Pooling" / "config.json", include_prompt=False)
    with refused("include_prompt is false", "prompts"):
        _load(bert)
    edit_json(bert / "config_sentence_transformers.json", prompts={"query": "", "document": ""})
    assert _load(bert).prompts.by_name == {"query": "", "document": ""}


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda f: make_bert(f, sentence_transformers=False), "mean"),
        (lambda f: make_qwen3(f, sentence_transformers=False), "last"),
        (lambda f: make_qwen3(f, causal=False, sentence_transformers=False), "mean"),
        (lambda f: make_qwen3(f, pplx=True, sentence_transformers=False), "mean"),
    ],
    ids=["bert", "causal", "bidirectional", "pplx"],
)
def test_a_bare_model_gets_what_sentence_transformers_gives_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Any, expected: str
) -> None:
    pooling = _load(make(tmp_path / "m")).pooling
    assert (pooling.pooling, pooling.normalize) == (expected, False)
    assert "no modules.json" in caplog.text


def test_the_quantiser_belongs_to_pplx(tmp_path: Path, pplx_folder: Path) -> None:
    checkpoint = _load(pplx_folder)
    assert (checkpoint.quantizer, checkpoint.pooling.normalize) == ("pplx", False)
    other = make_qwen3(tmp_path / "m", causal=False)
    modules = (pplx_folder / "modules.json").read_bytes()
    (other / "modules.json").write_bytes(modules)
    with refused("FlexibleQuantizer", "pplx-embed models only"):
        _load(other)


def test_prompts_and_their_default(tmp_path: Path) -> None:
    prompts = {"query": "query: ", "document": "passage: "}
    folder = make_bert(tmp_path / "m", prompts=prompts, default_prompt_name="document")
    read = _load(folder).prompts
    assert (read.by_name, read.default_name) == (prompts, "document")


def test_a_prompt_that_is_null_is_none(bert: Path) -> None:
    """As sentence-transformers reads it; it was refused."""
    edit_json(
        bert / "config_sentence_transformers.json", prompts={"query": "q: ", "document": None}
    )
    assert _load(bert).prompts.by_name == {"query": "q: ", "document": ""}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"default_prompt_name": "passage"}, ["'passage'", "'query'"]),
        ({"prompts": {"query": 3}}, ["prompts"]),
        ({"prompts": ["query: "]}, ["prompts"]),
        ({"model_type": "SparseEncoder"}, ["model_type", "SparseEncoder"]),
        ({"model_type": "CrossEncoder"}, ["model_type", "CrossEncoder"]),
    ],
)
def test_wrong_prompts_are_refused_at_load(
    bert: Path, changes: dict[str, object], says: list[str]
) -> None:
    edit_json(bert / "config_sentence_transformers.json", **changes)
    with refused("config_sentence_transformers.json", *says):
        _load(bert)
