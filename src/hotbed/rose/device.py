"""Where a model computes and in which type."""

from __future__ import annotations

import torch

from hotbed.core.errors import invalid

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def resolve_device(name: str) -> torch.device:
    """``cpu``; other devices are refused by name until ROSE has kernels for them."""
    if name != "cpu":
        raise invalid(f"device {name!r} is not supported; supported: cpu")
    return torch.device(name)


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """``auto`` is float32 on a CPU, whatever the files hold: half precision runs there at about 1 %
    of fp32's speed on most processors (sentence-transformers' documentation).
    """
    if name == "auto":
        return torch.float32
    if name not in _DTYPES:
        raise invalid(f"dtype {name!r} is unknown; there are: auto, {', '.join(_DTYPES)}")
    return _DTYPES[name]


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` for torch.float32, and so on."""
    return str(dtype).removeprefix("torch.")
