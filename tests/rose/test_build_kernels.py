"""The kernel builder's names and refusals; building needs packages that tests do not ask for."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hotbed.rose import build_kernels
from hotbed.rose.attention import fa4
from hotbed.rose.attention.fa4_kernels import Fa4Kernel
from hotbed.rose.kernels import gemm, gemm_build
from hotbed.rose.kernels.gemm_files import GemmKernel


def test_all_kernels_that_rose_takes_are_built() -> None:
    built = set(build_kernels.default_kernels())
    for head_dim, group in ((32, 1), (64, 1), (128, 2), (128, 4)):
        for mask, rules in fa4.TILES.items():
            for rule in rules:
                assert Fa4Kernel(head_dim, group, mask, rule.tile) in built
    for epilogue in gemm.MIN_ROWS:
        assert GemmKernel(epilogue) in built


def test_no_two_kernels_share_a_file() -> None:
    names = [kernel.file_name for kernel in build_kernels.default_kernels()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("only", "package"),
    [
        ("fa4_sm90_bf16_hd64_g1_full.so", "flash-attn-4"),
        ("gemm_sm90_bf16_swiglu_t128x128p.so", "quack-kernels"),
    ],
)
def test_everything_missing_is_named_at_once(
    only: str,
    package: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    for module in ("flash_attn", "quack", "nvidia_cutlass_dsl", "tvm_ffi"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    arguments = ["--out", str(tmp_path / "out"), "--cudart", str(tmp_path / "libcudart.so.13")]
    assert build_kernels.main([*arguments, "--only", only]) == 2
    said = capsys.readouterr().err
    for word in (package, "nvidia-cutlass-dsl", "apache-tvm-ffi", "C compiler", "cudart"):
        assert word in said
    other = {"flash-attn-4": "quack-kernels", "quack-kernels": "flash-attn-4"}[package]
    assert other not in said, "what is not asked for need not be there"
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_no_kernel_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build_kernels.main(["--out", str(tmp_path), "--only", "hd64.so"]) == 2
    assert "'hd64.so' is no kernel's file name" in capsys.readouterr().err


def test_gelu_in_an_epilogue_is_off_by_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function that quack compiles, by torch's tanh; the card's own is off by 2^-11 more."""
    minimum = SimpleNamespace(arch=SimpleNamespace(fmin=lambda x, most: x.clamp(max=most)))
    monkeypatch.setitem(sys.modules, "quack.activation", SimpleNamespace(tanh=torch.tanh))
    monkeypatch.setitem(sys.modules, "cutlass.cute", minimum)
    x = torch.linspace(-40, 40, 800_001, dtype=torch.float64)
    error = (gemm_build._exact_gelu()(x) - torch.nn.functional.gelu(x)).abs()
    assert float(error.max()) == pytest.approx(2.52e-5, rel=5e-3)
    assert error[x.abs() > 6].max() < 1e-7
