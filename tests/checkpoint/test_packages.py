"""Models from installed packages: found without running them, and really the upstream weights."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from hotbed.checkpoint.packages import (
    CATALOGUE,
    DEFAULT_MODEL,
    ModelPackage,
    PackagedModel,
    installed_folder,
    packaged_model,
)
from tests.checkpoint.errors import refused


def _package(root: Path, module: str, content: bytes) -> None:
    """A package that would fail if anybody imported it."""
    folder = root / module / "files"
    folder.mkdir(parents=True)
    (root / module / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "model.safetensors").write_bytes(content)


@pytest.fixture
def model() -> PackagedModel:
    return PackagedModel(
        name="org/model",
        aliases=(),
        weights_bytes=4,
        weights_sha256="",
        packages=(
            ModelPackage("hotbed_test_first", "files"),
            ModelPackage("hotbed_test_second", "files"),
        ),
    )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_first_installed_package_is_taken_and_not_imported(
    site: Path, model: PackagedModel
) -> None:
    _package(site, "hotbed_test_second", b"good")
    assert installed_folder(model) == site / "hotbed_test_second" / "files"
    _package(site, "hotbed_test_first", b"good")
    assert installed_folder(model) == site / "hotbed_test_first" / "files"
    assert not {"hotbed_test_first", "hotbed_test_second"} & set(sys.modules)


def test_no_package_is_no_folder(model: PackagedModel) -> None:
    assert installed_folder(model) is None


def test_a_damaged_package_is_named_and_not_passed_over(site: Path, model: PackagedModel) -> None:
    """Falling through to another source would hide the damage."""
    _package(site, "hotbed_test_first", b"short of it")
    _package(site, "hotbed_test_second", b"good")
    with refused("hotbed_test_first", "11 bytes", "has 4"):
        installed_folder(model)


def test_names_and_aliases_are_exact() -> None:
    assert packaged_model("all-MiniLM-L6-v2") is packaged_model(DEFAULT_MODEL) is CATALOGUE[0]
    assert packaged_model("all-minilm-l12-v2") is None


@pytest.mark.weights
def test_the_default_models_weights_are_the_upstream_file() -> None:
    folder = installed_folder(CATALOGUE[0])
    assert folder is not None
    with (folder / "model.safetensors").open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == CATALOGUE[0].weights_sha256
