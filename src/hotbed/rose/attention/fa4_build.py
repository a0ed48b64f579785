"""Builds FlashAttention 4 kernels into a folder: `python -m hotbed.rose.attention.fa4_build`.

    pip install "flash-attn-4[cu13]"
    python -m hotbed.rose.attention.fa4_build --out kernels

Needs no GPU: the kernels are compiled for sm_90a from tensors without data, 3 to 9 s each, and
linked with the C compiler into files of about 90 KB. The machine that runs them needs only
apache-tvm-ffi (3 MB), not the compiler (92 MB).
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hotbed.core.errors import HotbedError, invalid
from hotbed.rose.attention.fa4_kernels import DEFAULT_TILE, Fa4Kernel, Mask

# Read by flash_attn and by the CuTe compiler when they are imported.
_COMPILE_FOR_HOPPER = {
    "FLASH_ATTENTION_ARCH": "sm_90",
    "CUTE_DSL_ARCH": "sm_90a",
    "FLASH_ATTENTION_NUM_SMS": "132",
    "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED": "0",
}
_MODULES: dict[str, Callable[[], Any]] = {
    "flash-attn-4": lambda: importlib.import_module("flash_attn.cute.interface"),
    "nvidia-cutlass-dsl": lambda: importlib.import_module("nvidia_cutlass_dsl"),
    "apache-tvm-ffi": lambda: importlib.import_module("tvm_ffi"),
}
_CUDART = "libcudart.so.13"
_DSL_RUNTIME = "libcuda_dialect_runtime_static.a"

# The compiled kernel reports CUDA errors through these two, which the compiler's own Python package
# defines otherwise.
_STUB = """\
#include <stdio.h>
extern const char* cudaGetErrorString(int);
extern void TVMFFIErrorSetRaisedFromCStr(const char*, const char*);
static void raise_cuda(const char* what, int code) {
  char text[256];
  snprintf(text, sizeof text, "%s: CUDA error %d: %s", what, code, cudaGetErrorString(code));
  TVMFFIErrorSetRaisedFromCStr("RuntimeError", text);
}
void CuteDSLRT_TVMFFISetRaisedCudaError(int code) { raise_cuda("flash attention", code); }
void CuteDSLRT_TVMFFISetRaisedCudaLaunchError(int code) { raise_cuda("launch", code); }
"""


def default_kernels() -> list[Fa4Kernel]:
    """Every head dim, group and mask that ROSE's models have, in the tiles `fa4.TILES` names."""
    tiles: dict[Mask, list[tuple[int, int]]] = {
        "full": [DEFAULT_TILE, (64, 64)],
        "causal": [DEFAULT_TILE, (64, 64)],
        "win": [DEFAULT_TILE, (64, 64), (128, 64)],
    }
    return [
        Fa4Kernel(head_dim, group, mask, tile)
        for head_dim in (32, 64, 128)
        for group in (1, 2, 4)
        for mask, of_mask in tiles.items()
        for tile in of_mask
    ]


@dataclass(frozen=True, slots=True)
class Tools:
    """What compiles and links."""

    flash: Any
    compiler: str
    dsl_runtime: Path
    cudart: Path
    tvm_ffi_dir: Path


def find_tools(cudart: Path | None) -> Tools:
    """Import and find everything; raises HotbedError naming all that is missing.

    Args:
        cudart: `libcudart.so.13`, or None to look for it.
    """
    os.environ.update(_COMPILE_FOR_HOPPER)
    found, missing = {}, []
    for package, load in _MODULES.items():
        try:
            found[package] = load()
        except ImportError as error:
            missing.append(f"the package {package} ({error})")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        missing.append("a C compiler (cc or gcc)")
    cudart = cudart or _find_cudart()
    if cudart is None or not cudart.is_file():
        missing.append(f"{_CUDART} (pip install nvidia-cuda-runtime, or --cudart PATH)")
    if missing or compiler is None or cudart is None:
        raise invalid("cannot build FlashAttention 4 kernels without " + "; ".join(missing))
    dsl_runtime = Path(found["nvidia-cutlass-dsl"].__path__[0]) / "cu13" / "lib" / _DSL_RUNTIME
    if not dsl_runtime.is_file():
        raise invalid(f"there is no {dsl_runtime}: pip install 'nvidia-cutlass-dsl[cu13]'")
    libtvm_ffi = Path(found["apache-tvm-ffi"].libinfo.find_libtvm_ffi())
    return Tools(found["flash-attn-4"], compiler, dsl_runtime, cudart, libtvm_ffi.parent)


def build(kernel: Fa4Kernel, folder: Path, tools: Tools) -> Path:
    """Compile and link one kernel; the file appears whole or not at all."""
    target = folder / kernel.file_name
    with tempfile.TemporaryDirectory(dir=folder) as name:
        scratch = Path(name)
        (scratch / "stub.c").write_text(_STUB)
        _compile(kernel, tools.flash).export_to_c(
            object_file_path=str(scratch / "kernel.o"), function_name="run"
        )
        link = [
            *(tools.compiler, "-O2", "-fPIC", "-shared", "-s", "-Wl,--no-undefined"),
            *("-o", str(scratch / "kernel.so"), str(scratch / "kernel.o"), str(scratch / "stub.c")),
            *(str(tools.dsl_runtime), str(tools.cudart), f"-L{tools.tvm_ffi_dir}", "-ltvm_ffi"),
        ]
        done = subprocess.run(link, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise invalid(f"linking {kernel.file_name} failed: {done.stderr[-2000:]}")
        (scratch / "kernel.so").replace(target)
    return target


def _compile(kernel: Fa4Kernel, flash: Any) -> Any:
    """The compiled function, from tensors without data.

    Token and slot counts, strides and the window's sides are arguments of the kernel. No bound on
    the lengths is given: with one, FlashAttention would compile another kernel for short ones.
    """
    cache = flash._flash_attn_fwd.compile_cache
    cache.clear()
    side = 64 if kernel.mask == "win" else None
    with FakeTensorMode(), torch.device("cuda"):
        q = torch.empty(1024, 8 * kernel.group, kernel.head_dim, dtype=torch.bfloat16)
        k, v = (torch.empty(1024, 8, kernel.head_dim, dtype=torch.bfloat16) for _ in range(2))
        offsets = torch.empty(17, dtype=torch.int32)
        flash._flash_attn_fwd(
            q,
            k,
            v,
            cu_seqlens_q=offsets,
            cu_seqlens_k=offsets,
            causal=kernel.mask == "causal",
            window_size_left=side,
            window_size_right=side,
            tile_mn=None if kernel.tile == DEFAULT_TILE else kernel.tile,
        )
    (compiled,) = cache.cache.values()
    return compiled


def _find_cudart() -> Path | None:
    """In the nvidia-cuda-runtime package, or in a CUDA toolkit at its usual place."""
    folders = [Path(path) / "nvidia" / "cu13" / "lib" for path in sys.path]
    folders.append(Path("/usr/local/cuda/lib64"))
    return next((f / _CUDART for f in folders if (f / _CUDART).is_file()), None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hotbed.rose.attention.fa4_build")
    parser.add_argument("--out", type=Path, required=True, help="folder for the kernels")
    parser.add_argument("--only", nargs="+", metavar="FILE_NAME", help="build these, not all")
    parser.add_argument("--cudart", type=Path, help=f"where {_CUDART} is, if it is not found")
    options = parser.parse_args(arguments)
    try:
        wanted = _named(options.only) if options.only else default_kernels()
        tools = find_tools(options.cudart)
        options.out.mkdir(parents=True, exist_ok=True)
        for kernel in wanted:
            if not (options.out / kernel.file_name).exists():
                print(build(kernel, options.out, tools), flush=True)
    except HotbedError as error:
        print(error.message, file=sys.stderr)
        return 2
    return 0


def _named(file_names: Sequence[str]) -> list[Fa4Kernel]:
    kernels = []
    for name in file_names:
        if (kernel := Fa4Kernel.parse(name)) is None:
            raise invalid(
                f"{name!r} is no kernel's file name, like {default_kernels()[0].file_name}"
            )
        kernels.append(kernel)
    return kernels


if __name__ == "__main__":
    sys.exit(main())
