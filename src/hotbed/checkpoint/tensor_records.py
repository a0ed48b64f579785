"""Records of stored tensors, and of the linear layers that modules of a folder are made of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]

DenseActivation = Literal["none", "tanh", "relu", "gelu"]
DENSE_ACTIVATIONS: dict[str, DenseActivation] = {
    "Identity": "none",
    "Tanh": "tanh",
    "ReLU": "relu",
    "GELU": "gelu",
}
"""By torch's class."""


class TensorInfo(msgspec.Struct, frozen=True):
    """Where one tensor lies and what it is, as the safetensors header says."""

    file: Path
    dtype: str
    """safetensors name, e.g. ``F32`` or ``BF16``."""
    shape: tuple[int, ...]


class DenseModule(msgspec.Struct, frozen=True, kw_only=True):
    """A linear layer behind the pooling, or on every token, from a Dense module's folder."""

    in_features: _Count
    out_features: _Count
    activation: DenseActivation
    tensors: Mapping[str, TensorInfo]
    """``linear.weight`` and, where they are, ``linear.bias`` and ``residual.weight``; of a layer in
    a file of its own ``weight`` and ``bias``. Empty without the weights."""
    residual: bool = False
    """Whether the input, through ``residual.weight`` if the widths differ, is added behind the
    activation."""
