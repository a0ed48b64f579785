"""GEMMs with a fused epilogue, built ahead of time: their names and what a folder holds.

Epilogue and tile are baked into a kernel and make its name. Rows, columns and depth are free.
ROSE takes one tile, `TILE`; other files in a folder are for `bench.gemm` to compare it with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

Epilogue = Literal["swiglu", "gelu_bias", "gelu_tanh_bias"]
"""What follows x W^T: silu(first half) * second half; gelu(. + b), exact or by tanh."""

# Thread blocks of a cluster lie along the rows and share the tile of W that they load.
CLUSTER = 2


@dataclass(frozen=True, slots=True, order=True)
class GemmTile:
    """Rows and columns of the result that a thread block computes at a time.

    Attributes:
        m: rows.
        n: columns, before the two halves of a gated result are joined.
        pingpong: two warpgroups take tiles in turn, so that the epilogue of one hides behind the
            products of the other; otherwise they share a tile.
    """

    m: int
    n: int
    pingpong: bool

    @property
    def name(self) -> str:
        return f"t{self.m}x{self.n}{'p' if self.pingpong else 'c'}"


# The fastest or within 6 % of it for every layer and from 1,024 to 16,384 rows; see
# `hotbed.rose.kernels.gemm`.
TILE = GemmTile(128, 128, pingpong=True)


@dataclass(frozen=True, slots=True, order=True)
class GemmKernel:
    """What is baked into one kernel for sm_90 and bfloat16."""

    epilogue: Epilogue
    tile: GemmTile = TILE

    @property
    def file_name(self) -> str:
        return f"gemm_sm90_bf16_{self.epilogue}_{self.tile.name}.so"

    @staticmethod
    def parse(file_name: str) -> GemmKernel | None:
        """The kernel in a file of this name; None if it is none."""
        if (match := _NAME.fullmatch(file_name)) is None:
            return None
        epilogue, m, n, schedule = match.groups()
        return GemmKernel(cast(Epilogue, epilogue), GemmTile(int(m), int(n), schedule == "p"))


_NAME = re.compile(rf"gemm_sm90_bf16_({'|'.join(get_args(Epilogue))})_t(\d+)x(\d+)([pc])\.so")


def kernels_in(folder: Path) -> list[GemmKernel]:
    """All fused GEMMs in a folder, in order; none if it is no folder."""
    found = (GemmKernel.parse(path.name) for path in folder.glob("gemm_*.so"))
    return sorted(kernel for kernel in found if kernel is not None)
