"""Devices, driver and versions, as they are, and what this machine lacks."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

import torch

from hotbed import __version__
from hotbed.core.cache_folder import default_cache_folder
from hotbed.doctor.report import Device, Missing
from hotbed.rose.attention.fa4_kernels import kernels_in, runtime
from hotbed.rose.attention.select import AttentionSettings
from hotbed.rose.device import device_name
from hotbed.rose.kernels.cpu.build import CannotCompileError
from hotbed.rose.kernels.cpu.encoder import load_library

_PACKAGES = (
    *("torch", "triton", "apache-tvm-ffi", "numpy", "safetensors", "tokenizers", "nanotoken"),
    *("fastokens", "grpcio", "uvicorn", "huggingface_hub"),
)
_FA4_CAPABILITY = (9, 0)


def devices() -> list[Device]:
    """The GPUs, then the CPU."""
    found = []
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        found.append(
            Device(
                device=f"cuda:{index}",
                name=facts.name,
                memory_bytes=facts.total_memory,
                detail=f"compute capability {facts.major}.{facts.minor}, "
                f"{facts.multi_processor_count} multiprocessors",
            )
        )
    cpu = torch.device("cpu")
    found.append(
        Device(
            device="cpu",
            name=device_name(cpu),
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            detail=f"{len(os.sched_getaffinity(0))} cores, {torch.get_num_threads()} threads, "
            f"{torch.backends.cpu.get_cpu_capability()}",
        )
    )
    return found


def versions() -> dict[str, str | None]:
    """By package; None where one is not installed."""
    found: dict[str, str | None] = {"hotbed": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    found["torch"] = str(torch.__version__)  # with the build it is
    found["cuda"] = torch.version.cuda
    return found


def driver() -> str | None:
    """Version of the NVIDIA kernel driver, or None without one."""
    file = Path("/sys/module/nvidia/version")
    return file.read_text(encoding="ascii").strip() if file.is_file() else None


def missing(device: torch.device, settings: AttentionSettings) -> list[Missing]:
    """What would help on `device`, most needed first."""
    return (
        [*_gpu_missing(device, settings)] if device.type == "cuda" else [*_cpu_missing()]
    ) + _tokenizers_missing()


def _gpu_missing(device: torch.device, settings: AttentionSettings) -> list[Missing]:
    found = []
    installed = versions()
    if installed["triton"] is None:
        found.append(
            Missing(
                what="triton",
                effect="no model runs on a GPU without it",
                command="pip install 'hotbed[gpu]'",
                is_needed=True,
            )
        )
    if torch.cuda.get_device_capability(device) == _FA4_CAPABILITY:
        effect = "attention is torch's varlen, slower from 512 tokens a text on"
        if runtime() is None:
            found.append(
                Missing(
                    what="apache-tvm-ffi, which loads FlashAttention 4's kernels",
                    effect=effect,
                    command="pip install 'hotbed[gpu]'",
                )
            )
        if settings.kernel_dir is None or not kernels_in(settings.kernel_dir):
            found.append(
                Missing(
                    what="a folder of FlashAttention 4 kernels (--kernel-dir, serve: "
                    "--tulip.kernel-dir)",
                    effect=effect,
                    command="python -m hotbed.rose.attention.fa4_build --out DIR",
                )
            )
    return found


def _cpu_missing() -> list[Missing]:
    found = []
    if driver() is not None and torch.version.cuda is None:
        found.append(
            Missing(
                what="a torch that is built for CUDA: there is an NVIDIA driver",
                effect="the GPU is not used",
                command="pip install --force-reinstall torch",
            )
        )
    try:
        load_library(default_cache_folder())
    except CannotCompileError as error:
        found.append(
            Missing(
                what=f"the kernel for short texts: {error}",
                effect="texts of up to 32 tokens take about twice as long",
                command="apt install gcc libc6-dev",
            )
        )
    return found


def _tokenizers_missing() -> list[Missing]:
    installed = versions()
    absent = [name for name in ("nanotoken", "fastokens") if installed[name] is None]
    if not absent:
        return []
    return [
        Missing(
            what=f"faster tokenizers: {', '.join(absent)}",
            effect="tokenising takes 5 to 50 times the CPU time",
            command="pip install 'hotbed[fast-tokenizers]'",
        )
    ]
