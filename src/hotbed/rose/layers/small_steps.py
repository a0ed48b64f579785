"""What the paths of small steps on Hopper share: where there are any, which steps take them."""

from __future__ import annotations

import importlib

import torch
from torch import Tensor

from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.fused import current_mode

# Past this many slots a step takes the usual path: each block looks through all.
_MAX_SLOTS = 256


def has_small_steps(weight: Tensor) -> bool:
    """Whether kernels of small steps run where `weight` is, in its dtype and the model's mode.

    They are BF16, and sum in other orders than the usual path: a model in FP8, and one whose rows
    may not depend on a step's size, has none.
    """
    mode = current_mode()
    if weight.device.type != "cuda" or weight.dtype != torch.bfloat16:
        return False
    if mode.fp8 or mode.invariant or not mode.small_steps:
        return False
    nvrtc = importlib.import_module("hotbed.rose.kernels.hopper.nvrtc")
    return nvrtc.missing(weight.device) is None


def is_small(batch: PackedBatch, max_tokens: int) -> bool:
    """Whether a step takes the path whose kernels are the fastest up to `max_tokens`."""
    return len(batch.token_ids) <= max_tokens and len(batch.cu_seqlens) - 1 <= _MAX_SLOTS
