"""The kernel's own source, on the CPU: see `tests/rose/kernels/hopper/emulator`."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")
from bench import small_attention as small
from bench.gemm import share_of_rounding
from hotbed.rose.kernels.hopper.nvrtc import HEADER
from hotbed.rose.kernels.short_attention import reference

EMULATOR = Path(__file__).parents[1] / "rose" / "kernels" / "hopper" / "emulator"
DRIVER = """
extern "C" void run(const unsigned short* qkv, long tokens, long width, const Args* args, int tiles,
                    int heads) {
  static TensorMap map;
  static Args given;
  map = {qkv, tokens, width, width, BOX_ROWS};
  given = *args;
  body = [] { small_attention(map, given); };
  for (int y = 0; y < heads; ++y)
    for (int x = 0; x < tiles; ++x) run_block(x, y);
}
"""
PRODUCTS = """
static void multiply_scores(float (&d)[KEYS / 2], u64 a, u64 b, int is_more) {
  product(d, a, b, is_more, false);
}
static void multiply_values(float (&d)[HEAD_DIM / 2], const u32* a, u64 b, int is_more) {
  product(d, a, b, is_more, true);
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emulated")


def emulated(kernel: small.Kernel, folder: Path) -> Any:
    """The kernel as a function of a library."""
    name = f"{kernel.head_dim}-{kernel.keys}-{kernel.stages}-{kernel.causal}"
    library = folder / f"{name}.so"
    if not library.is_file():
        source = library.with_suffix(".cpp")
        source.write_text(
            f'{kernel.definitions()}#include "hopper.cuh"\n{PRODUCTS}'
            f"{small.SOURCE.read_text()}{DRIVER}"
        )
        command = ["g++", "-std=c++17", "-O2", "-w", "-shared", "-fPIC", f"-I{EMULATOR}"]
        subprocess.run([*command, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library)).run


def attend(qkv: Tensor, lengths: list[int], spare_slots: int, folder: Path, **shape: Any) -> Tensor:
    heads, kv = shape["num_heads"], shape["num_kv_heads"]
    head_dim = qkv.shape[1] // (heads + 2 * kv)
    offsets = small.offsets_of(lengths + [0] * spare_slots, torch.device("cpu"))
    out = torch.full((len(qkv), heads * head_dim), torch.nan, dtype=torch.bfloat16)
    args = small.Args(
        out=out.data_ptr(),
        offsets=offsets.data_ptr(),
        num_slots=len(offsets) - 1,
        num_heads=heads,
        num_kv_heads=kv,
        scale=shape["scale"] * small.LOG2_E,
    )
    kernel = small.Kernel.of(head_dim, len(qkv), causal=shape["causal"])
    tiles, _ = small.grid_of(len(qkv), len(offsets) - 1, heads)
    emulated(kernel, folder)(
        ctypes.c_void_p(qkv.data_ptr()),
        ctypes.c_long(len(qkv)),
        ctypes.c_long(qkv.shape[1]),
        ctypes.byref(args),
        tiles,
        heads,
    )
    return out


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(
    ("lengths", "spare_slots"),
    [([1], 0), ([31], 3), ([32, 1], 0), ([127, 1], 0), ([129], 1), ([3] * 34, 0), ([300, 20], 0)],
    ids=str,
)
def test_every_row_is_the_formulas(
    lengths: list[int], spare_slots: int, head_dim: int, causal: bool, folder: Path
) -> None:
    torch.manual_seed(0)
    shape = {"num_heads": 2, "num_kv_heads": 1, "scale": head_dim**-0.5, "causal": causal}
    qkv = torch.randn(sum(lengths), 4 * head_dim).bfloat16()
    got = attend(qkv, lengths, spare_slots, folder, **shape)
    offsets = small.offsets_of(lengths, torch.device("cpu"))
    assert share_of_rounding(got, reference(qkv, offsets, **shape), 4e-3) <= 1


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_a_text_that_is_not_a_number_is_so_alone(folder: Path) -> None:
    """Its values lie in the boxes that a neighbour loads."""
    shape = {"num_heads": 1, "num_kv_heads": 1, "scale": 0.1, "causal": False}
    qkv = torch.randn(60, 3 * 64).bfloat16()
    qkv[20:40] = torch.nan
    got = attend(qkv, [20, 20, 20], 0, folder, **shape)
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
    head_dim: int, num_tokens: int, tmp_path: Path
) -> None:
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
