"""Whether a layer runs on the GPU kernels: decided once, when it is built, by where its weight is.

Here alone the Triton kernels are imported, when the first layer on a GPU is built: a machine
without a GPU need not have Triton.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType

from torch import Tensor

from hotbed.core.errors import invalid
from hotbed.rose.kernels.gemm import FusedGemm, FusedGemms, fits
from hotbed.rose.kernels.gemm_files import Epilogue

_gemms: ContextVar[FusedGemms | None] = ContextVar("gemms", default=None)


def kernels_for(weight: Tensor) -> ModuleType | None:
    """`hotbed.rose.kernels.launchers` for a weight on a GPU, None elsewhere.

    Raises:
        HotbedError: INVALID_INPUT if there is no Triton.
    """
    if not runs_on_kernels(weight):
        return None
    try:
        from hotbed.rose.kernels import launchers  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise invalid(
            "a model on a GPU needs Triton, which is missing: install hotbed[gpu]"
        ) from error
    return launchers


@contextmanager
def with_gemms(gemms: FusedGemms | None) -> Iterator[None]:
    """Layers that are built inside may take fused GEMMs from `gemms`, as `torch.device` says where
    tensors go: so that a model's page need not hand it through.
    """
    token = _gemms.set(gemms)
    try:
        yield
    finally:
        _gemms.reset(token)


def gemm_for(weight: Tensor, epilogue: Epilogue) -> FusedGemm | None:
    """The fused GEMM for a weight on a GPU, if the model is built with one that takes its shape."""
    gemms = _gemms.get()
    if gemms is None or not runs_on_kernels(weight) or not fits(epilogue, weight):
        return None
    return gemms.get(epilogue)


def runs_on_kernels(weight: Tensor) -> bool:
    """Whether the kernels take tensors where `weight` is."""
    return weight.is_cuda
