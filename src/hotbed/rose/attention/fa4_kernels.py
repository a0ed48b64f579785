"""FlashAttention 4 kernels built ahead of time: their names, what a folder holds, and loading.

`hotbed.rose.build_kernels` makes them. Head dim, group and mask are baked into a kernel and
not checked by it: with other tensors it computes something else. So they are its name, and a kernel
is only ever found by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from hotbed.rose.attention.backend import AttentionSpec
from hotbed.rose.kernels import files

Mask = Literal["full", "causal", "win"]
Tile = tuple[int, int]
"""Rows of queries and of keys in a block; `DEFAULT_TILE` is what FlashAttention chooses itself."""
DEFAULT_TILE: Tile = (0, 0)

_NAME = re.compile(r"fa4_sm90_bf16_hd(\d+)_g(\d+)_(full|causal|win)(?:_t(\d+)x(\d+))?\.so")


@dataclass(frozen=True, slots=True, order=True)
class Fa4Kernel:
    """What is baked into one kernel for sm_90 and bfloat16."""

    head_dim: int
    group: int
    mask: Mask
    tile: Tile = DEFAULT_TILE

    @property
    def file_name(self) -> str:
        tile = "" if self.tile == DEFAULT_TILE else f"_t{self.tile[0]}x{self.tile[1]}"
        return f"fa4_sm90_bf16_hd{self.head_dim}_g{self.group}_{self.mask}{tile}.so"

    @staticmethod
    def parse(file_name: str) -> Fa4Kernel | None:
        """The kernel in a file of this name; None if it is none."""
        if (match := _NAME.fullmatch(file_name)) is None:
            return None
        head_dim, group, mask, m, n = match.groups()
        tile = DEFAULT_TILE if m is None else (int(m), int(n))
        return Fa4Kernel(int(head_dim), int(group), cast(Mask, mask), tile)


def mask_of(spec: AttentionSpec) -> Mask:
    """A causal window, too, is the window kernel: its two sides are arguments."""
    if spec.window is not None:
        return "win"
    return "causal" if spec.causal else "full"


def tiles_in(folder: Path, spec: AttentionSpec) -> list[Tile]:
    """The tiles a folder has kernels for, for one model."""
    wanted = (spec.head_dim, spec.group, mask_of(spec))
    return [k.tile for k in kernels_in(folder) if (k.head_dim, k.group, k.mask) == wanted]


def kernels_in(folder: Path) -> list[Fa4Kernel]:
    """All kernels in a folder, in order; none if it is no folder."""
    found = (Fa4Kernel.parse(path.name) for path in folder.glob("fa4_*.so"))
    return sorted(kernel for kernel in found if kernel is not None)


def load(folder: Path, kernel: Fa4Kernel) -> Callable[..., None]:
    """The kernel as a function of 18 positional arguments; see `fa4.Fa4Backend.run`.

    Raises:
        HotbedError: INVALID_INPUT if the file is not there or cannot be loaded.
    """
    return files.load(folder / kernel.file_name, "FlashAttention 4")
