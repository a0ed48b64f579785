"""The kernel builder's names and refusals; building needs packages that tests do not ask for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hotbed.rose.attention import fa4, fa4_build
from hotbed.rose.attention.fa4_kernels import Fa4Kernel


def test_all_kernels_that_the_tile_table_names_are_built() -> None:
    built = set(fa4_build.default_kernels())
    for mask, rules in fa4.TILES.items():
        for rule in rules:
            for head_dim in (32, 64, 128):
                for group in (1, 2, 4):
                    assert Fa4Kernel(head_dim, group, mask, rule.tile) in built


def test_everything_missing_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    for module in ("flash_attn", "nvidia_cutlass_dsl", "tvm_ffi"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    missing = str(tmp_path / "libcudart.so.13")
    assert fa4_build.main(["--out", str(tmp_path / "out"), "--cudart", missing]) == 2
    said = capsys.readouterr().err
    for word in ("flash-attn-4", "nvidia-cutlass-dsl", "apache-tvm-ffi", "C compiler", "cudart"):
        assert word in said
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_no_kernel_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fa4_build.main(["--out", str(tmp_path), "--only", "hd64.so"]) == 2
    assert "'hd64.so' is no kernel's file name" in capsys.readouterr().err
