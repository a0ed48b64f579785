"""In which type, and under which promise, a model computes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from hotbed.core.errors import invalid
from hotbed.rose.kernels.gemm import ALL_ROWS, open_gemms
from hotbed.rose.kernels.gemm_files import FP8_OPERANDS
from hotbed.rose.layers.fused import Mode

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "fp8": torch.bfloat16}
# The first with FP8 arithmetic.
_FP8_CAPABILITY = (8, 9)


@dataclass(frozen=True, slots=True)
class Compute:
    """How a model computes.

    Attributes:
        dtype: of embeddings, norms, attention and the residual stream, and of weights and
            activations unless `fp8`.
        fp8: linear layers compute in FP8, see `hotbed.rose.layers.fp8_linear`.
        invariant: a text's bytes are the same alone and in every batch.
    """

    dtype: torch.dtype
    fp8: bool = False
    invariant: bool = False

    @property
    def name(self) -> str:
        """For people and fingerprints: ``float32``, ``bfloat16``, ``fp8``, ``bfloat16 invariant``.

        Two models of one name give the same rows up to the arithmetic of their devices.
        """
        dtype = "fp8" if self.fp8 else str(self.dtype).removeprefix("torch.")
        return f"{dtype} invariant" if self.invariant else dtype


def resolve_compute(dtype: str, device: torch.device, *, invariant: bool = False) -> Compute:
    """What a person asked for, checked against the device.

    Args:
        dtype: ``float32``, ``bfloat16``, ``fp8`` or ``auto``: bfloat16 on CUDA and float32 on a
            CPU, whatever the files hold. Half precision runs on most CPUs at about 1 % of fp32's
            speed (sentence-transformers' docs).
        device: where.
        invariant: whether rows may not depend on the batch.

    Raises:
        HotbedError: INVALID_INPUT naming the field.
    """
    if dtype == "auto":
        dtype = "bfloat16" if device.type == "cuda" else "float32"
    if dtype not in _DTYPES:
        raise invalid(f"dtype {dtype!r} is unknown; there are: auto, {', '.join(_DTYPES)}")
    if dtype == "fp8":
        _check_fp8(device)
        if invariant:
            raise invalid("dtype fp8 cannot be invariant: its products are tiled by a step's size")
    return Compute(_DTYPES[dtype], fp8=dtype == "fp8", invariant=invariant)


def open_mode(compute: Compute, kernel_dir: Path | None, device: torch.device) -> Mode:
    """What layers are built for, with the fused GEMMs that a folder of kernels has for it."""
    if compute.fp8:
        gemms = open_gemms(
            kernel_dir, device, compute.dtype, min_rows=ALL_ROWS, operands=FP8_OPERANDS
        )
    elif compute.invariant:
        gemms = open_gemms(kernel_dir, device, compute.dtype, min_rows=ALL_ROWS)
    else:
        gemms = open_gemms(kernel_dir, device, compute.dtype)
    return Mode(gemms, fp8=compute.fp8, invariant=compute.invariant)


def _check_fp8(device: torch.device) -> None:
    if device.type != "cuda":
        raise invalid(
            f"dtype fp8 needs a GPU with FP8 arithmetic, the device is {device.type}; supported "
            "there: auto, float32, bfloat16"
        )
    capability = torch.cuda.get_device_capability(device)
    if capability < _FP8_CAPABILITY:
        raise invalid(
            f"dtype fp8 needs compute capability 8.9 or more, {device} has "
            f"{capability[0]}.{capability[1]}"
        )
