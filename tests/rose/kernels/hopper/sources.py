"""What tests of kernels in CUDA C++ read off their source and off what nvcc makes of it."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hotbed.rose.kernels.hopper.nvrtc import HEADER

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")


def check_arguments(args: type[ctypes.Structure], source: str) -> None:
    """The launcher and the kernel mean the same: a field elsewhere would be read as an address."""
    names = {ctypes.c_uint64: "u64", ctypes.c_float: "float", ctypes.c_int32: "int"}
    told = [(names[kind], name) for name, kind in args._fields_]
    body = re.search(r"struct Args \{(.*?)\};", source, re.DOTALL)
    assert body is not None
    assert re.findall(r"^\s*(u64|float|int) (\w+);", body[1], re.MULTILINE) == told


def compile_source(source: str, folder: Path) -> str:
    """What ptxas reports of a source that compiles for sm_90a."""
    (folder / "kernel.cu").write_text(source)
    command = ["nvcc", "-arch=sm_90a", "-cubin", "-Xptxas", "-v", f"-I{HEADER.parent}", "kernel.cu"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def check_products_follow_each_other(source: str, folder: Path) -> None:
    """The compiler waits for each wgmma, and says so, where something else writes the
    accumulators; and no register is spilt.
    """
    report = compile_source(source, folder)
    assert "registers" in report, "ptxas has reported"
    assert "C7515" not in report
    assert set(re.findall(r"(\d+) bytes spill", report)) == {"0"}
