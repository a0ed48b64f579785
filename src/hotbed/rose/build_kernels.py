"""Builds kernels ahead of time into a folder: `python -m hotbed.rose.build_kernels`.

    pip install "flash-attn-4[cu13]>=4.0.0b36" "quack-kernels[cu13]==0.6.5"
    python -m hotbed.rose.build_kernels --out kernels

FlashAttention 4, and GEMMs with what follows them fused. Both packages must lie in a folder named
site-packages, as in any virtual environment: quack refuses to compile its parts from elsewhere, and
the compiler is found through a .pth file there. Needs no GPU: the kernels are compiled for
sm_90a from tensors without data, 2 to 9 s each, and linked with the C compiler into files of about
90 KB. The machine that runs them needs only apache-tvm-ffi (3 MB), not the compiler (92 MB).
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

from hotbed.core.errors import HotbedError, invalid
from hotbed.rose.attention import fa4_build
from hotbed.rose.attention.fa4_kernels import Fa4Kernel
from hotbed.rose.kernels import gemm_build
from hotbed.rose.kernels.gemm_files import GemmKernel

Kernel = Fa4Kernel | GemmKernel

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
void CuteDSLRT_TVMFFISetRaisedCudaError(int code) { raise_cuda("kernel", code); }
void CuteDSLRT_TVMFFISetRaisedCudaLaunchError(int code) { raise_cuda("launch", code); }
"""


@dataclass(frozen=True, slots=True)
class Tools:
    """What compiles and links.

    Attributes:
        sources: of the kernels, by their package: `flash-attn-4` and `quack-kernels`.
        compiler: a C compiler.
        dsl_runtime: the static library the kernels are linked with.
        cudart: CUDA's runtime library.
        tvm_ffi_dir: folder of libtvm_ffi.
    """

    sources: dict[str, Any]
    compiler: str
    dsl_runtime: Path
    cudart: Path
    tvm_ffi_dir: Path


def default_kernels() -> list[Kernel]:
    """All that ROSE's models take."""
    return [*fa4_build.default_kernels(), *gemm_build.default_kernels()]


def find_tools(kernels: Sequence[Kernel], cudart: Path | None) -> Tools:
    """Import and find everything; raises HotbedError naming all that is missing.

    Args:
        kernels: to be built.
        cudart: `libcudart.so.13`, or None to look for it.
    """
    modules: dict[str, Callable[[], Any]] = {
        "nvidia-cutlass-dsl": lambda: importlib.import_module("nvidia_cutlass_dsl"),
        "apache-tvm-ffi": lambda: importlib.import_module("tvm_ffi"),
    }
    for kind, builder in ((Fa4Kernel, fa4_build), (GemmKernel, gemm_build)):
        if any(isinstance(kernel, kind) for kernel in kernels):
            os.environ.update(builder.ENVIRONMENT)
            modules[builder.PACKAGE] = builder.load
    found, missing = {}, []
    for package, load in modules.items():
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
        raise invalid("cannot build kernels without " + "; ".join(missing))
    dsl_runtime = Path(found["nvidia-cutlass-dsl"].__path__[0]) / "cu13" / "lib" / _DSL_RUNTIME
    if not dsl_runtime.is_file():
        raise invalid(f"there is no {dsl_runtime}: pip install 'nvidia-cutlass-dsl[cu13]'")
    libtvm_ffi = Path(found["apache-tvm-ffi"].libinfo.find_libtvm_ffi())
    return Tools(found, compiler, dsl_runtime, cudart, libtvm_ffi.parent)


def build(kernel: Kernel, folder: Path, tools: Tools) -> Path:
    """Compile and link one kernel; the file appears whole or not at all."""
    if isinstance(kernel, Fa4Kernel):
        compiled = fa4_build.compile_kernel(kernel, tools.sources[fa4_build.PACKAGE])
    else:
        compiled = gemm_build.compile_kernel(kernel, tools.sources[gemm_build.PACKAGE])
    return link(compiled, folder / kernel.file_name, tools)


def link(compiled: Any, target: Path, tools: Tools) -> Path:
    """A compiled function as a library of its own; the file appears whole or not at all."""
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        scratch = Path(name)
        (scratch / "stub.c").write_text(_STUB)
        compiled.export_to_c(object_file_path=str(scratch / "kernel.o"), function_name="run")
        command = [
            *(tools.compiler, "-O2", "-fPIC", "-shared", "-s", "-Wl,--no-undefined"),
            *("-o", str(scratch / "kernel.so"), str(scratch / "kernel.o"), str(scratch / "stub.c")),
            *(str(tools.dsl_runtime), str(tools.cudart), f"-L{tools.tvm_ffi_dir}", "-ltvm_ffi"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise invalid(f"linking {target.name} failed: {done.stderr[-2000:]}")
        (scratch / "kernel.so").replace(target)
    return target


def _find_cudart() -> Path | None:
    """In the nvidia-cuda-runtime package, or in a CUDA toolkit at its usual place."""
    folders = [Path(path) / "nvidia" / "cu13" / "lib" for path in sys.path]
    folders.append(Path("/usr/local/cuda/lib64"))
    return next((f / _CUDART for f in folders if (f / _CUDART).is_file()), None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hotbed.rose.build_kernels")
    parser.add_argument("--out", type=Path, required=True, help="folder for the kernels")
    parser.add_argument("--only", nargs="+", metavar="FILE_NAME", help="build these, not all")
    parser.add_argument("--cudart", type=Path, help=f"where {_CUDART} is, if it is not found")
    options = parser.parse_args(arguments)
    try:
        wanted = _named(options.only) if options.only else default_kernels()
        tools = find_tools(wanted, options.cudart)
        options.out.mkdir(parents=True, exist_ok=True)
        for kernel in wanted:
            if not (options.out / kernel.file_name).exists():
                print(build(kernel, options.out, tools), flush=True)
    except HotbedError as error:
        print(error.message, file=sys.stderr)
        return 2
    return 0


def _named(file_names: Sequence[str]) -> list[Kernel]:
    kernels: list[Kernel] = []
    for name in file_names:
        kernel = Fa4Kernel.parse(name) or GemmKernel.parse(name)
        if kernel is None:
            examples = fa4_build.default_kernels()[0], gemm_build.default_kernels()[0]
            like = " or ".join(example.file_name for example in examples)
            raise invalid(f"{name!r} is no kernel's file name, like {like}")
        kernels.append(kernel)
    return kernels


if __name__ == "__main__":
    sys.exit(main())
