"""The fingerprint follows the recipe and nothing else."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from hotbed.checkpoint.fingerprint import fingerprint
from hotbed.checkpoint.load import load_checkpoint
from tests.support.checkpoints import edit_json, make_bert, make_qwen3, save_tensors
from tests.support.tiny_weights import random_tensors


def _print(folder: Path, dtype: str = "float32") -> str:
    return fingerprint(load_checkpoint(str(folder)), dtype)


@pytest.fixture
def bert(tmp_path: Path, bert_folder: Path) -> Path:
    return Path(shutil.copytree(bert_folder, tmp_path / "copy"))


def test_the_same_model_elsewhere_has_the_same_fingerprint(bert: Path, bert_folder: Path) -> None:
    assert _print(bert) == _print(bert_folder)
    assert re.fullmatch("[0-9a-f]{16}", _print(bert))
    assert _print(bert.rename(bert.with_name("renamed"))) == _print(bert_folder)


def test_files_that_make_no_vector_do_not_count(bert: Path, bert_folder: Path) -> None:
    (bert / "README.md").write_text("other words")
    edit_json(bert / "config.json", transformers_version="9.9", torch_dtype="float32")
    edit_json(bert / "config_sentence_transformers.json", similarity_fn_name="dot")
    assert _print(bert) == _print(bert_folder)


@pytest.mark.parametrize("offset", [1, 200_000])
def test_one_changed_byte_of_the_weights_counts(bert: Path, bert_folder: Path, offset: int) -> None:
    file = bert / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-offset] ^= 1
    file.write_bytes(content)
    assert _print(bert) != _print(bert_folder)


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config.json", {"hidden_act": "relu"}),
        ("config.json", {"layer_norm_eps": 1e-5}),
        ("sentence_bert_config.json", {"max_seq_length": 32}),
        ("1_Pooling/config.json", {"pooling_mode": "cls"}),
    ],
)
def test_every_part_of_the_recipe_counts(
    bert: Path, bert_folder: Path, file: str, changes: dict[str, object]
) -> None:
    edit_json(bert / file, **changes)
    assert _print(bert) != _print(bert_folder)


def test_normalisation_the_compute_type_and_attention_count(tmp_path: Path) -> None:
    folders = [
        make_bert(tmp_path / "a"),
        make_bert(tmp_path / "b", normalize=False),
        make_qwen3(tmp_path / "c", pooling="mean"),
        make_qwen3(tmp_path / "d", pooling="mean", causal=False),
        make_qwen3(tmp_path / "e", pplx=True, normalize=True),
    ]
    prints = {_print(folder) for folder in folders} | {_print(folders[0], "bfloat16")}
    assert len(prints) == 6


def test_shards_have_one_fingerprint_whatever_their_names(tmp_path: Path) -> None:
    folder = make_qwen3(tmp_path / "m", sharded=True)
    before = _print(folder)
    index = folder / "model.safetensors.index.json"
    text = index.read_text()
    for old, new in (("model-00001-of-00002", "z"), ("model-00002-of-00002", "a")):
        (folder / f"{old}.safetensors").rename(folder / f"{new}.safetensors")
        text = text.replace(old, new)
    index.write_text(text)
    assert _print(folder) == before


def test_there_is_none_without_weights(bert_folder: Path) -> None:
    checkpoint = load_checkpoint(str(bert_folder), weights=False)
    with pytest.raises(ValueError, match="without its weights"):
        fingerprint(checkpoint, "float32")


def test_dense_modules_count_in_their_order(tmp_path: Path) -> None:
    """Two of one shape, swapped, give other vectors."""
    layers = [(64, "activation.Tanh", True), (64, "linear.Identity", True)]
    folder = make_bert(tmp_path / "m", dense=layers)
    before = _print(folder)
    weights = [folder / f"{n}_Dense" / "model.safetensors" for n in (2, 3)]
    save_tensors(weights[1], random_tensors({"linear.weight": (64, 64), "linear.bias": (64,)}, 9))
    changed = _print(folder)
    first, second = (w.read_bytes() for w in weights)
    weights[0].write_bytes(second)
    weights[1].write_bytes(first)
    assert len({before, changed, _print(folder), _print(make_bert(tmp_path / "bare"))}) == 4
