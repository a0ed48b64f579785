"""Where a model computes."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from hotbed.core.errors import invalid


def resolve_device(name: str) -> torch.device:
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``, if it is there.

    ``auto`` is a CUDA device if there is one, else the CPU; ``auto:N`` is device N, counted round.
    """
    kind, _, index = name.partition(":")
    is_cpu = name == "cpu"
    if not is_cpu and (kind not in ("auto", "cuda") or not (index or "0").isdigit()):
        raise invalid(f"device {name!r} is not supported; supported: auto, cpu, cuda, cuda:N")
    if is_cpu or (kind == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if kind == "auto":
        return torch.device("cuda", int(index or 0) % torch.cuda.device_count())
    if not torch.cuda.is_available():
        raise invalid(f"device {name!r}: this torch ({torch.__version__}) finds no CUDA device")
    number, available = int(index or 0), torch.cuda.device_count()
    if number >= available:
        raise invalid(f"device {name!r}: there are {available} CUDA devices, from cuda:0 on")
    return torch.device("cuda", number)


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` for torch.float32, and so on."""
    return str(dtype).removeprefix("torch.")


def device_name(device: torch.device) -> str:
    """The product's name, of a CPU as the kernel tells it: ``NVIDIA H200``, ``AMD EPYC ...``."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
