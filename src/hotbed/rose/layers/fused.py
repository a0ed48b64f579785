"""Whether a layer runs on the GPU kernels: decided once, when it is built, by where its weight is.

Here alone the kernels are imported, when the first layer on a GPU is built: they need Triton, which
a machine without a GPU need not have.
"""

from __future__ import annotations

from types import ModuleType

from torch import Tensor

from hotbed.core.errors import invalid


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


def runs_on_kernels(weight: Tensor) -> bool:
    """Whether the kernels take tensors where `weight` is."""
    return weight.is_cuda
