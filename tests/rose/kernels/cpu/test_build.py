"""Compiling on this machine: once, whole or not at all, and a reason when it does not work."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

import pytest

from hotbed.rose.kernels.cpu import build
from hotbed.rose.kernels.cpu.build import CannotCompileError, compile_library
from hotbed.rose.kernels.cpu.encoder import SOURCE

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "seven.c"
    path.write_text("int seven(void) { return 7; }")
    return path


def test_a_library_is_compiled_once_and_leaves_nothing_else(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "deep"
    made = compile_library(source, folder)
    assert ctypes.CDLL(str(made)).seven() == 7
    before = made.stat().st_mtime_ns
    assert compile_library(source, folder) == made
    assert made.stat().st_mtime_ns == before
    assert list(folder.iterdir()) == [made]


def test_another_source_is_another_file(source: Path, tmp_path: Path) -> None:
    first = compile_library(source, tmp_path)
    source.write_text("int seven(void) { return 8; }")
    assert compile_library(source, tmp_path) != first


def test_a_compiler_that_fails_says_so(source: Path, tmp_path: Path) -> None:
    source.write_text("this is not C")
    with pytest.raises(CannotCompileError, match=r"the C compiler failed: .*error"):
        compile_library(source, tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_no_compiler_is_said(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    with pytest.raises(CannotCompileError, match="no C compiler"):
        compile_library(source, tmp_path)


def test_a_cache_that_cannot_be_written_is_said(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotCompileError, match="cache folder"):
        compile_library(source, tmp_path / "file" / "cache")


def test_the_kernel_compiles_without_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = ("-Wall", "-Wextra", "-Werror", "-O1")
    monkeypatch.setattr(build, "_FLAGS", build._FLAGS + strict)
    assert os.access(compile_library(SOURCE, tmp_path), os.R_OK)


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3"])
def test_the_kernel_compiles_for_lesser_cpus(
    cpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("not an x86 machine")
    flags = ("-Werror", "-O1", f"-march={cpu}")
    monkeypatch.setattr(build, "_FLAGS", build._FLAGS + flags)
    compile_library(SOURCE, tmp_path)
