"""How a layer computes, decided once, when it is built: on the GPU kernels by where its weight is,
in FP8 or with the same bits for every batch by the mode the model is built in.

Here alone the Triton kernels are imported, when the first layer on a GPU is built: a machine
without a GPU need not have Triton.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType

from torch import Tensor

from hotbed.core.errors import invalid
from hotbed.rose.kernels.gemm import FusedGemm, FusedGemms, fits
from hotbed.rose.kernels.gemm_files import Epilogue


@dataclass(frozen=True, slots=True)
class Mode:
    """What layers on a GPU are built for.

    Attributes:
        gemms: the fused GEMMs they may take; for FP8 those of FP8.
        fp8: linear layers take weights and activations in FP8 (`hotbed.rose.layers.fp8_linear`).
        invariant: a row's bits may not depend on the other rows of a step: each layer has one
            kernel with one tiling for steps of all sizes.
        small_steps: whether steps of few tokens may have kernels of their own.
    """

    gemms: FusedGemms | None = None
    fp8: bool = False
    invariant: bool = False
    small_steps: bool = True


_PLAIN = Mode()
_mode: ContextVar[Mode] = ContextVar("mode", default=_PLAIN)


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
def with_mode(mode: Mode) -> Iterator[None]:
    """Layers that are built inside are built for `mode`, as `torch.device` says where tensors go:
    so that a model's page need not hand it through.
    """
    token = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(token)


def with_gemms(gemms: FusedGemms | None) -> AbstractContextManager[None]:
    """Layers that are built inside may take fused GEMMs from `gemms`."""
    return with_mode(Mode(gemms))


def current_mode() -> Mode:
    """What layers are being built for."""
    return _mode.get()


def gemm_for(weight: Tensor, epilogue: Epilogue) -> FusedGemm | None:
    """The fused GEMM for a weight on a GPU, if the model is built with one that takes its shape."""
    gemms = _mode.get().gemms
    if gemms is None or not runs_on_kernels(weight) or not fits(epilogue, weight):
        return None
    return gemms.get(epilogue)


def runs_on_kernels(weight: Tensor) -> bool:
    """Whether the kernels take tensors where `weight` is."""
    return weight.is_cuda
