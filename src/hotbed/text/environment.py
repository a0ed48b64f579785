"""Environment variables for whoever starts a process that tokenises; nothing here sets them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

TOKENIZER_ENVIRONMENT: Final[Mapping[str, str]] = MappingProxyType(
    {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
)
"""Keeps the tokenizer libraries from starting pools of their own, a thread a core, in each process.

They read these variables only, there is no call for it. Parallelism comes from Ivy's processes and
its thread pool; inside one call it changes the wall time but not the CPU time (2026-11-30), and
with several processes the pools only fight. Set them before the first text is tokenised.
"""
