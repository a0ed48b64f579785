"""Weight files: the index is followed, headers are checked, pickles are never touched."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from hotbed.checkpoint.folder import ModelFolder
from hotbed.checkpoint.safetensors_index import read_header, read_tensors, weight_files
from tests.checkpoint.errors import refused
from tests.support.checkpoints import edit_json, make_bert, make_qwen3, save_tensors, write_json

SECOND = "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"


def _folder(path: Path) -> ModelFolder:
    return ModelFolder(name="m", source="folder", path=path)


@pytest.fixture
def sharded(tmp_path: Path) -> ModelFolder:
    return _folder(make_qwen3(tmp_path / "sharded", sharded=True))


def test_names_types_and_shapes(tmp_path: Path) -> None:
    folder = _folder(make_bert(tmp_path / "m", dtype="float16"))
    tensor = read_tensors(folder)["embeddings.position_embeddings.weight"]
    assert (tensor.dtype, tensor.shape) == ("F16", (128, 64))
    assert tensor.file == folder.path / "model.safetensors"


def test_a_type_that_numpy_lacks_can_be_seen(tmp_path: Path) -> None:
    """bfloat16: only the header is read, so no library need know the type."""
    header = b'{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    file = tmp_path / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    assert read_header(file)["a"].dtype == "BF16"


def test_shards_hold_what_one_file_holds(sharded: ModelFolder, qwen3_folder: Path) -> None:
    whole = read_tensors(_folder(qwen3_folder))
    parts = read_tensors(sharded)
    assert {n: t.shape for n, t in parts.items()} == {n: t.shape for n, t in whole.items()}
    assert {t.file.name for t in parts.values()} == set(weight_files(sharded))


def test_stray_weight_files_are_not_merged_in(sharded: ModelFolder) -> None:
    """A glob once merged a second model that lay beside the shards."""
    stray = {"embed_tokens.weight": np.zeros((2, 2), np.float32), "stray": np.zeros(1, np.float32)}
    save_tensors(sharded.path / "model.safetensors", stray)
    save_tensors(sharded.path / "consolidated.safetensors", stray)
    tensors = read_tensors(sharded)
    assert "stray" not in tensors
    assert tensors["embed_tokens.weight"].shape[1] == 64


def test_a_missing_shard_is_named(sharded: ModelFolder) -> None:
    (sharded.path / SECOND).unlink()
    with refused(f"{SECOND} is missing", INDEX):
        read_tensors(sharded)


def test_a_stale_index_beside_the_whole_model_is_explained(
    sharded: ModelFolder, qwen3_folder: Path
) -> None:
    (sharded.path / SECOND).unlink()
    whole = (qwen3_folder / "model.safetensors").read_bytes()
    (sharded.path / "model.safetensors").write_bytes(whole)
    with refused(SECOND, "remove the index"):
        read_tensors(sharded)


def test_tensors_that_the_index_promises_are_named(sharded: ModelFolder) -> None:
    save_tensors(sharded.path / SECOND, {"other": np.zeros(1, np.float32)})
    with refused(SECOND, "not in their files", "'layers.1.input_layernorm.weight'", "7 more"):
        read_tensors(sharded)


@pytest.mark.parametrize(
    "weight_map",
    [
        None,
        {},
        [],
        {"a": 3},
        {"a": "../elsewhere/model.safetensors"},
        {"a": "/model.safetensors"},
        {"a": "pytorch_model-00001-of-00002.bin"},
    ],
)
def test_a_wrong_index_is_refused(sharded: ModelFolder, weight_map: object) -> None:
    edit_json(sharded.path / INDEX, weight_map=weight_map)
    with refused(INDEX, "weight_map"):
        read_tensors(sharded)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x08\x00\x00",
        (2**62).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (9).to_bytes(8, "little") + b"not JSON!",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 90868376\n",
    ],
    ids=["empty", "short", "huge-header", "list", "no-json", "lfs-pointer"],
)
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with refused(str(file), "not a complete safetensors file"):
        read_header(file)


@pytest.mark.parametrize("cut", [1, 4096])
def test_a_file_cut_short_is_found_without_reading_it(tmp_path: Path, cut: int) -> None:
    file = make_bert(tmp_path / "m") / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-cut])
    with refused("not a complete safetensors file"):
        read_header(file)


class _Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return (sys.exit, ("unpickled",))


def test_pickles_are_refused_unopened_with_the_way_out(tmp_path: Path) -> None:
    folder = _folder(make_bert(tmp_path / "m"))
    (folder.path / "model.safetensors").unlink()
    (folder.path / "pytorch_model.bin").write_bytes(pickle.dumps(_Bomb()))
    with refused("pytorch_model.bin", "safetensors only", "convert_weights"):
        read_tensors(folder)


def test_weights_under_other_names_are_listed(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {})
    (tmp_path / "adapter_model.safetensors").touch()
    (tmp_path / "model.onnx").touch()
    with refused("model.safetensors is missing", "adapter_model.safetensors, model.onnx"):
        read_tensors(_folder(tmp_path))


def test_a_folder_without_weights_says_so(tmp_path: Path) -> None:
    with refused("model.safetensors is missing", "safetensors only"):
        read_tensors(_folder(tmp_path))
