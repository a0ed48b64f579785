"""Files of a model folder: JSON as people write it, and folders that lead outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotbed.checkpoint.folder import ModelFolder, read_json_object, unsupported
from tests.checkpoint.errors import refused


def test_what_pythons_json_writes_can_be_read(tmp_path: Path) -> None:
    """NaN and a byte order mark are in real config.json files."""
    file = tmp_path / "config.json"
    file.write_text('\ufeff{"a": NaN, "b": Infinity, "c": "ä"}', encoding="utf-8")
    assert read_json_object(file)["c"] == "ä"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\xfd", b'{"a": 1}{}', b"[" * 100_000])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with refused(str(file), "not valid JSON"):
        read_json_object(file)


def test_a_list_is_not_an_object(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("[]")
    with refused(str(file), "expected a JSON object"):
        read_json_object(file)


@pytest.mark.parametrize("path", ["../other", "a/../../b", "/etc"])
def test_a_module_path_must_stay_inside(tmp_path: Path, path: str) -> None:
    folder = ModelFolder(name="m", source="folder", path=tmp_path)
    with refused(path, "outside"):
        folder.sub(path)


def test_a_long_value_is_cut_in_the_message(tmp_path: Path) -> None:
    error = unsupported(tmp_path / "config.json", "hidden_act", "x" * 10_000, ("gelu",))
    assert len(error.message) < 500
    assert error.param == "hidden_act"
