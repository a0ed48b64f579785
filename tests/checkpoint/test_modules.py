"""modules.json: every module is run or refused, in whatever spelling."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotbed.checkpoint.folder import ModelFolder
from hotbed.checkpoint.modules import read_modules, weight_paths
from tests.checkpoint.errors import refused
from tests.support.checkpoints import write_json

OLD = "sentence_transformers.models"
NEW = "sentence_transformers.base.modules.transformer"


def _folder(tmp_path: Path, *types: str, first_path: str = "") -> ModelFolder:
    entries = [
        {"idx": i, "name": str(i), "path": f"{i}_X" if i else first_path, "type": kind}
        for i, kind in enumerate(types)
    ]
    write_json(tmp_path / "modules.json", entries)
    return ModelFolder(name="m", source="folder", path=tmp_path)


@pytest.mark.parametrize(
    "types",
    [
        (f"{OLD}.Transformer", f"{OLD}.Pooling", f"{OLD}.Normalize"),
        (
            f"{NEW}.Transformer",
            "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
            "sentence_transformers.base.modules.normalize.Normalize",
        ),
    ],
)
def test_the_spelling_of_the_types_does_not_matter(tmp_path: Path, types: tuple[str, ...]) -> None:
    modules = read_modules(_folder(tmp_path, *types))
    assert modules is not None
    assert [m.kind for m in modules] == ["Transformer", "Pooling", "Normalize"]


@pytest.mark.parametrize(
    "kind", ["Dropout", "WeightedLayerPooling", "LayerNorm", "Router", "CLIPModel"]
)
def test_a_module_is_never_left_out_silently(tmp_path: Path, kind: str) -> None:
    folder = _folder(tmp_path, f"{OLD}.Transformer", f"{OLD}.Pooling", f"{OLD}.{kind}")
    with refused(f"{OLD}.{kind}", "supported: Transformer, Pooling, Dense, Normalize"):
        read_modules(folder)


@pytest.mark.parametrize(
    "kinds",
    [
        ("Pooling",),
        (),
        ("Transformer", "Normalize", "Pooling"),
        ("Transformer", "Pooling", "Normalize", "Normalize"),
        ("Transformer", "Pooling", "Normalize", "Dense"),
        ("Transformer", "Dense", "Pooling"),
        ("Transformer", "Transformer", "Pooling"),
    ],
)
def test_an_order_that_is_not_run_is_refused(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    with refused(" -> ".join(kinds), "Transformer -> Pooling"):
        read_modules(_folder(tmp_path, *(f"{OLD}.{k}" for k in kinds)))


@pytest.mark.parametrize(
    "entries", [{"type": "x"}, ["x"], [{"type": 3, "path": ""}], [{"path": ""}]]
)
def test_a_malformed_file_is_named(tmp_path: Path, entries: object) -> None:
    write_json(tmp_path / "modules.json", entries)
    with refused("modules.json", "type and a path"):
        read_modules(ModelFolder(name="m", source="folder", path=tmp_path))


@pytest.mark.parametrize(("path", "expected"), [("", ""), (".", ""), ("0_BERT/", "0_BERT")])
def test_where_the_transformer_lies(tmp_path: Path, path: str, expected: str) -> None:
    folder = _folder(tmp_path, f"{OLD}.Transformer", f"{OLD}.Pooling", first_path=path)
    assert weight_paths(folder) == [expected]


def test_a_bare_folder_has_no_modules(tmp_path: Path) -> None:
    folder = ModelFolder(name="m", source="folder", path=tmp_path)
    assert read_modules(folder) is None
    assert weight_paths(folder) == [""]
