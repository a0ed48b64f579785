"""The kernel's own source, on the CPU: see `tests/rose/kernels/hopper/emulator`."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")
from bench import small_attention as small
from bench.gemm import share_of_rounding
from hotbed.rose.kernels.hopper.nvrtc import HEADER
from hotbed.rose.kernels.hopper.wgmma import product
from hotbed.rose.kernels.short_attention import reference
from tests.rose.kernels.hopper.emulator.launcher import emulate, needs_compiler


@pytest.fixture(autouse=True)
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, small)


@needs_compiler
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(
    ("lengths", "spare_slots"),
    [([31, 1], 3), ([127, 1], 0), ([129], 1), ([3] * 34, 0), ([300, 20], 0)],
    ids=str,
)
def test_every_row_is_the_formulas(
    lengths: list[int], spare_slots: int, head_dim: int, causal: bool
) -> None:
    torch.manual_seed(0)
    shape = {"num_heads": 2, "num_kv_heads": 1, "scale": head_dim**-0.5, "causal": causal}
    qkv = torch.randn(sum(lengths), 4 * head_dim).bfloat16()
    offsets = small.offsets_of(lengths + [0] * spare_slots, torch.device("cpu"))
    got = small.small_attention(qkv, offsets, **shape)
    assert share_of_rounding(got, reference(qkv, offsets, **shape), 4e-3) <= 1


@needs_compiler
def test_a_text_that_is_not_a_number_is_so_alone() -> None:
    """Its values lie in the boxes that a neighbour loads."""
    qkv = torch.randn(60, 3 * 64).bfloat16()
    qkv[20:40] = torch.nan
    offsets = small.offsets_of([20, 20, 20], torch.device("cpu"))
    got = small.small_attention(qkv, offsets, num_heads=1, num_kv_heads=1, scale=0.1)
    assert got[20:40].isnan().all()
    assert got[:20].isfinite().all()
    assert got[40:].isfinite().all()


def test_the_launcher_and_the_kernel_mean_the_same_arguments() -> None:
    names = {ctypes.c_uint64: "u64", ctypes.c_float: "float", ctypes.c_int32: "int"}
    told = [(names[kind], name) for name, kind in small.Args._fields_]
    body = re.search(r"struct Args \{(.*?)\};", small.SOURCE.read_text(), re.DOTALL)
    assert body is not None
    assert re.findall(r"^\s*(u64|float|int) (\w+);", body[1], re.MULTILINE) == told


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("num_tokens", [32, 128, 256])
def test_the_compiler_lets_products_follow_each_other(
    head_dim: int, num_tokens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small, "product", product)
    kernel = small.Kernel.of(head_dim, num_tokens, causal=False)
    source = tmp_path / "kernel.cu"
    source.write_text(kernel.prologue() + small.SOURCE.read_text())
    command = ["nvcc", "-arch=sm_90a", "-cubin", "-Xptxas", "-v", f"-I{HEADER.parent}"]
    done = subprocess.run(
        [*command, str(source)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "registers" in done.stderr, "ptxas has reported"
    assert "C7515" not in done.stderr
    assert set(re.findall(r"(\d+) bytes spill", done.stderr)) == {"0"}
