"""GEMMs with a fused epilogue, built ahead of time: their names and what a folder holds.

Operands, epilogue and tile are baked into a kernel and make its name. Rows, columns and depth are
free. ROSE takes one tile for each kind of operands, `TILES`; other files in a folder are for
`bench.gemm` and `bench.fp8` to compare it with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

Epilogue = Literal["plain", "bias", "add", "swiglu", "gelu_bias", "gelu_tanh_bias"]
"""What follows x W^T: nothing; + b; + a matrix that is written over; silu(first half) * second
half; gelu(. + b), exact or by tanh."""

Operands = Literal["bf16", "fp8", "fp8fast"]
"""Types of x and W. fp8 is e4m3 with a scale for each row of x and of W: the tensor core's sum, of
about 14 bits, is added to one in fp32 after every 128 of the depth. fp8fast leaves all of the depth
to the tensor core."""

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


# bf16: the fastest or within 6 % of it for every layer and from 1,024 to 16,384 rows; see
# `hotbed.rose.kernels.gemm`. fp8: two sums a value; 128 x 128 by each of two warpgroups in turn, or
# 256 columns, do not fit the registers. fp8fast: the fastest of three tiles for all layers but one.
TILES: dict[Operands, GemmTile] = {
    "bf16": GemmTile(128, 128, pingpong=True),
    "fp8": GemmTile(128, 128, pingpong=False),
    "fp8fast": GemmTile(128, 128, pingpong=True),
}
TILE = TILES["bf16"]

# us a call at 8,192 rows, H200, 2026-12-01 (bench/fp8.py), fp8 / fp8fast: QKV, out, gate/up, down
# of the 0.6B shape 73 / 57, 36 / 28, 114 / 90, 49 / 39; of bge-m3's 56 / 44, 21 / 15, 94 / 91,
# 55 / 48. Their sums are off by up to 2.7 of one rounding to BF16 where the others' are by 0.9: far
# below what the operands' own rounding to 3 bits costs.
FP8_OPERANDS: Operands = "fp8fast"
"""How products in FP8 are summed."""


@dataclass(frozen=True, slots=True, order=True)
class GemmKernel:
    """What is baked into one kernel for sm_90 with results in bfloat16."""

    epilogue: Epilogue
    tile: GemmTile = TILE
    operands: Operands = "bf16"

    @staticmethod
    def chosen(epilogue: Epilogue, operands: Operands = "bf16") -> GemmKernel:
        """The kernel that ROSE takes."""
        return GemmKernel(epilogue, TILES[operands], operands)

    @property
    def file_name(self) -> str:
        return f"gemm_sm90_{self.operands}_{self.epilogue}_{self.tile.name}.so"

    @staticmethod
    def parse(file_name: str) -> GemmKernel | None:
        """The kernel in a file of this name; None if it is none."""
        if (match := _NAME.fullmatch(file_name)) is None:
            return None
        operands, epilogue, m, n, schedule = match.groups()
        tile = GemmTile(int(m), int(n), schedule == "p")
        return GemmKernel(cast(Epilogue, epilogue), tile, cast(Operands, operands))


_NAME = re.compile(
    rf"gemm_sm90_({'|'.join(get_args(Operands))})_({'|'.join(get_args(Epilogue))})"
    r"_t(\d+)x(\d+)([pc])\.so"
)


def kernels_in(folder: Path) -> list[GemmKernel]:
    """All fused GEMMs in a folder, in order; none if it is no folder."""
    found = (GemmKernel.parse(path.name) for path in folder.glob("gemm_*.so"))
    return sorted(kernel for kernel in found if kernel is not None)
