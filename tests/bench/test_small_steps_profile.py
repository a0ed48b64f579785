"""The marks that bench.small_steps_profile puts into the kernel still find their places."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from bench.small_steps_profile import ANCHORS, marked
from hotbed.rose.kernels.hopper import small_gemm
from tests.rose.kernels.hopper.sources import compile_source


def test_each_stage_is_marked_once(tmp_path: Path) -> None:
    source = marked(small_gemm._SOURCE.read_text())
    assert source.count("mark(") == len(ANCHORS) + 1 + 1, "gather has two; and the function"
    if shutil.which("nvcc") is None:
        return
    prologue = small_gemm.Kernel(32, 128, 2, 8, "qkv", 16).prologue() + "#define NOTES 4096ull\n"
    compile_source(prologue + source, tmp_path)


def test_a_source_without_its_place_is_refused() -> None:
    with pytest.raises(ValueError, match="0 times, not once"):
        marked("nothing")
