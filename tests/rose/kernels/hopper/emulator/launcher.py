"""`compile_function`, `tile_map` and `product` for a CPU: by g++ and this folder's `hopper.cuh`."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

HERE = Path(__file__).parent
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


class TensorMap(ctypes.Structure):
    """As `hopper.cuh` has it."""

    _fields_ = (
        ("matrix", ctypes.c_void_p),
        ("height", ctypes.c_long),
        ("width", ctypes.c_long),
        ("stride", ctypes.c_long),
        ("rows", ctypes.c_long),
    )


def tile_map(matrix: Tensor, *, rows: int, columns: int = 64) -> TensorMap:
    """See `nvrtc.tile_map`."""
    assert columns == 64
    assert matrix.stride(1) == 1
    return TensorMap(matrix.data_ptr(), *matrix.shape, matrix.stride(0), rows)


@dataclass(frozen=True)
class Function:
    """See `nvrtc.Function`."""

    run: Any

    def launch(
        self,
        arguments: Sequence[Any],
        *,
        grid: tuple[int, int],
        threads: int,
        shared_bytes: int = 0,
        cluster: tuple[int, int] = (1, 1),
    ) -> None:
        """Run it."""
        assert cluster[1] == 1
        addresses = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        self.run(addresses, *grid, threads, cluster[0])


def compile_function(
    source: Path, prologue: str, name: str, device: torch.device, shared_bytes: int = 0
) -> Function:
    """See `nvrtc.compile_function`."""
    return Function(_library(source.read_text(), prologue, name).launch_kernel)


def product(name: str, columns: int) -> str:
    """See `wgmma.product`."""
    return (
        f"static void {name}(float (&d)[{columns // 2}], u64 a, u64 b, int is_more) "
        "{ product(d, a, b, is_more); }\n"
    )


def emulate(monkeypatch: pytest.MonkeyPatch, launcher: Any) -> None:
    """Have the module `launcher` compile for the CPU, and launch there."""
    for replaced in (compile_function, tile_map, product):
        monkeypatch.setattr(launcher, replaced.__name__, replaced)


@functools.cache
def _folder() -> Any:
    return tempfile.TemporaryDirectory(prefix="hotbed-emulator-")


@functools.cache
def _library(source: str, prologue: str, name: str) -> ctypes.CDLL:
    code = (
        f'#include "hopper.cuh"\n{prologue}{source}\n'
        'extern "C" void launch_kernel(void** arguments, int x, int y, int threads, int cluster) '
        f"{{ launch({name}, arguments, x, y, threads, cluster); }}\n"
    )
    path = Path(_folder().name) / hashlib.sha256(code.encode()).hexdigest()[:16]
    path.with_suffix(".cpp").write_text(code)
    command = ["g++", "-std=c++17", "-O2", "-w", "-shared", "-fPIC", f"-I{HERE}"]
    subprocess.run(
        [*command, str(path.with_suffix(".cpp")), "-o", str(path.with_suffix(".so"))], check=True
    )
    return ctypes.CDLL(str(path.with_suffix(".so")))
