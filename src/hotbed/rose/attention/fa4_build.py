"""Compiles FlashAttention 4 kernels; see `hotbed.rose.build_kernels`."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hotbed.rose.attention.fa4 import TILES
from hotbed.rose.attention.fa4_kernels import DEFAULT_TILE, Fa4Kernel

PACKAGE = "flash-attn-4"
# Read by flash_attn and by the CuTe compiler when they are imported.
ENVIRONMENT = {
    "FLASH_ATTENTION_ARCH": "sm_90",
    "CUTE_DSL_ARCH": "sm_90a",
    "FLASH_ATTENTION_NUM_SMS": "132",
    "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED": "0",
}
# (head dim, query heads a key head), among them MiniLM's, BERT's and ModernBERT's, and those of
# Qwen3 and Mistral. Others can be built by name.
_HEADS = ((32, 1), (64, 1), (64, 4), (128, 1), (128, 2), (128, 4))


def load() -> Any:
    """FlashAttention's module, imported; raises ImportError."""
    return importlib.import_module("flash_attn.cute.interface")


def default_kernels() -> list[Fa4Kernel]:
    """The head dims and groups that ROSE's models have, with every mask, in the tiles it takes."""
    return [
        Fa4Kernel(head_dim, group, mask, rule.tile)
        for head_dim, group in _HEADS
        for mask, rules in TILES.items()
        for rule in rules
    ]


def compile_kernel(kernel: Fa4Kernel, flash: Any) -> Any:
    """The compiled function, from tensors without data.

    Token and slot counts, strides and the window's sides are arguments of the kernel. No bound on
    the lengths is given: with one, FlashAttention would compile another kernel for short ones.
    """
    cache = flash._flash_attn_fwd.compile_cache
    cache.clear()
    side = 64 if kernel.mask == "win" else None
    with FakeTensorMode(), torch.device("cuda"):
        q = torch.empty(1024, 8 * kernel.group, kernel.head_dim, dtype=torch.bfloat16)
        k, v = (torch.empty(1024, 8, kernel.head_dim, dtype=torch.bfloat16) for _ in range(2))
        offsets = torch.empty(17, dtype=torch.int32)
        flash._flash_attn_fwd(
            q,
            k,
            v,
            cu_seqlens_q=offsets,
            cu_seqlens_k=offsets,
            causal=kernel.mask == "causal",
            window_size_left=side,
            window_size_right=side,
            tile_mn=None if kernel.tile == DEFAULT_TILE else kernel.tile,
        )
    (compiled,) = cache.cache.values()
    return compiled
