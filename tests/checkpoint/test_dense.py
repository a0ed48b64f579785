"""Dense modules: read in order, checked against the row that comes in, or refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotbed.checkpoint.load import load_checkpoint
from tests.checkpoint.errors import refused
from tests.support.checkpoints import edit_json, make_bert, save_tensors
from tests.support.tiny_weights import random_tensors

TANH = "activation.Tanh"
IDENTITY = "linear.Identity"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_bert(tmp_path / "m", dense=[(96, TANH, True), (32, IDENTITY, False)])


def test_the_last_modules_width_is_the_rows(folder: Path) -> None:
    checkpoint = load_checkpoint(str(folder))
    assert [(m.in_features, m.out_features, m.activation) for m in checkpoint.dense] == [
        (64, 96, "tanh"),
        (96, 32, "none"),
    ]
    assert [set(m.tensors) for m in checkpoint.dense] == [
        {"linear.weight", "linear.bias"},
        {"linear.weight"},
    ]
    assert checkpoint.dimensions == 32
    assert checkpoint.pooling.normalize


def test_the_width_is_known_without_the_weights(folder: Path) -> None:
    """Ivy reads the folder so."""
    (folder / "2_Dense" / "model.safetensors").unlink()
    checkpoint = load_checkpoint(str(folder), weights=False)
    assert checkpoint.dimensions == 32
    assert not checkpoint.dense[0].tensors


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"in_features": 65}, ["in_features is 65", "64"]),
        ({"activation_function": "torch.nn.modules.activation.PReLU"}, ['"PReLU"', '"Tanh"']),
        ({"bias": False}, ["linear.bias", "asks for"]),
        ({"out_features": 97}, ["(96, 64)", "(97, 64)"]),
        ({"out_features": "96"}, ["out_features"]),
        ({"module_input_name": "token_embeddings"}, ["module_input_name", "sentence_embedding"]),
    ],
)
def test_what_would_give_other_rows_is_refused(
    folder: Path, changes: dict[str, object], says: list[str]
) -> None:
    edit_json(folder / "2_Dense" / "config.json", **changes)
    with refused("2_Dense", *says):
        load_checkpoint(str(folder))


def test_a_pickle_alone_is_refused_with_the_way_out(folder: Path) -> None:
    weights = folder / "2_Dense" / "model.safetensors"
    weights.rename(weights.with_name("pytorch_model.bin"))
    with refused("2_Dense", "pytorch_model.bin", "safetensors only"):
        load_checkpoint(str(folder))


def test_a_surplus_tensor_is_refused(folder: Path) -> None:
    shapes = {"linear.weight": (96, 64), "linear.bias": (96,), "norm.weight": (96,)}
    save_tensors(folder / "2_Dense" / "model.safetensors", random_tensors(shapes, 0))
    with refused("2_Dense", "norm.weight"):
        load_checkpoint(str(folder))
