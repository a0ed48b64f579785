"""Files of kernels built ahead of time (`hotbed.rose.build_kernels`): loading one.

Each is a shared library of about 90 KB with one function, ``run``. It needs neither the compiler
nor the package its source came from, only apache-tvm-ffi, and runs on torch's current stream.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import cast

import torch

from hotbed.core.errors import invalid

CAPABILITY = (9, 0)
"""Compute capability the kernels are built for: sm_90a code runs on no other."""


def runtime() -> ModuleType | None:
    """The module that loads kernels, from apache-tvm-ffi; None if it is not installed."""
    try:
        return importlib.import_module("tvm_ffi")
    except ModuleNotFoundError:
        return None


def missing(folder: Path | None, device: torch.device) -> str | None:
    """What kernels from `folder` lack to run on a CUDA device, for a person to read; or None."""
    if folder is None:
        return "no folder of kernels was given"
    if not folder.is_dir():
        return f"{folder} is not a folder"
    if runtime() is None:
        return "the package apache-tvm-ffi is not installed"
    if not torch.cuda.is_available():
        return f"this torch ({torch.__version__}) finds no CUDA device"
    capability = torch.cuda.get_device_capability(device)
    if capability != CAPABILITY:
        return f"its kernels are for compute capability 9.0, not {capability[0]}.{capability[1]}"
    return None


def load(path: Path, what: str) -> Callable[..., None]:
    """The function in a kernel's file; it checks number, dtypes and shapes of its arguments.

    Args:
        path: of the file.
        what: the kernel is, for messages.

    Raises:
        HotbedError: INVALID_INPUT if the file is not there or cannot be loaded.
    """
    tvm_ffi = runtime()
    if tvm_ffi is None:
        raise invalid(f"{what} kernels need the package apache-tvm-ffi")
    if not path.is_file():
        raise invalid(f"there is no {what} kernel {path}")
    try:
        return cast(Callable[..., None], tvm_ffi.load_module(str(path))["run"])
    except (RuntimeError, AttributeError) as error:
        raise invalid(f"{what} kernel {path} cannot be loaded: {error}") from error
