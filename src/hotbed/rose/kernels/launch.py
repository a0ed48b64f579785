# mypy: ignore-errors
"""What the launchers share: programmatic dependent launch, sizes of row kernels, argument checks.

Programmatic dependent launch (PDL): a kernel may start while the one before it still runs, so the
start-up of the one hides behind the end of the other. Every kernel here keeps to one order:

    1. load weights and other constants of the model;
    2. gdc_wait(): from here on everything that earlier kernels wrote is visible, and they are done;
    3. gdc_launch_dependents(): the next kernel may start;
    4. read inputs, compute, write. No write comes before the wait, not even to scratch.

As 3 comes after 2, what runs before a kernel's wait overlaps with its immediate predecessor alone.
Worth 17 to 25 % at 32 to 128 tokens (H200, 2026-11-30, a whole model of such kernels in a graph).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from hotbed.core.errors import invalid

MAX_WIDTH = 8192
"""Widest row that a program holds in registers: 8 warps, 32 fp32 values a thread."""
WIDTH_MULTIPLE = 8
"""Keeps every row of BF16 at a 16-byte boundary, so that a thread loads 16 bytes at once and no
load straddles the end of a row."""
_DTYPES = (torch.bfloat16, torch.float32)

# One wave: 132 multiprocessors hold 16 programs of 4 warps each. Fewer rows than that get a program
# each, for parallelism; more share programs, so that a weight is loaded once for several rows and
# more loads are in flight.
_ONE_WAVE_ROWS = 132 * 16
# 4 warps with 32 values a thread: four 16-byte loads of BF16 in flight.
_SHARED_PROGRAM_VALUES = 4096


@dataclass(frozen=True, slots=True)
class RowLaunch:
    """How a kernel over rows [T, D] is launched.

    Attributes:
        rows: rows a program.
        block: D rounded up to a power of two.
        num_warps: so that a thread has 8 values a row, one 16-byte access of BF16, if it can.
    """

    rows: int
    block: int
    num_warps: int

    def grid(self, num_rows: int) -> tuple[int]:
        """Programs for `num_rows` rows."""
        return (triton.cdiv(num_rows, self.rows),)


@functools.lru_cache(maxsize=1024)
def row_launch(num_rows: int, width: int, *, fixed: bool = False) -> RowLaunch:
    """Launch of a kernel over [num_rows, width].

    Args:
        num_rows: T.
        width: D.
        fixed: the launch of many rows, however many there are: rows and warps of a program decide
            in which order the values of a row are summed.
    """
    block = triton.next_power_of_2(width)
    is_one_wave = num_rows <= _ONE_WAVE_ROWS and not fixed
    rows = 1 if is_one_wave else max(1, _SHARED_PROGRAM_VALUES // block)
    num_warps = min(8, max(1, block // 256))
    return RowLaunch(rows, block, max(4, num_warps) if rows > 1 else num_warps)


def use_pdl(x: Tensor, pdl: bool | None) -> bool:
    """The caller's choice, else the default of x's device."""
    return default_pdl(x.device) if pdl is None else pdl


@functools.cache
def default_pdl(device: torch.device) -> bool:
    """Whether kernels on `device` are launched with PDL: from compute capability 9.0 on."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def check_width(what: str, width: int) -> None:
    """For layers, when a model is loaded: whether a kernel takes whole rows of this width.

    Raises:
        HotbedError: INVALID_INPUT naming the limit.
    """
    check_multiple(what, width)
    if width > MAX_WIDTH:
        raise invalid(f"{what} over {width} values: on a GPU it can be over {MAX_WIDTH} at most")


def check_multiple(what: str, width: int) -> None:
    """The same for kernels that take a row in pieces, of any width.

    Raises:
        HotbedError: INVALID_INPUT naming the limit.
    """
    if width % WIDTH_MULTIPLE or width <= 0:
        raise invalid(
            f"{what} over {width} values: on a GPU it must be a multiple of {WIDTH_MULTIPLE}"
        )


def check_matrix(name: str, x: Tensor, *, like: Tensor | None = None) -> None:
    """Refuse what a kernel would misread; a ValueError here is a bug in the caller.

    Args:
        name: of the argument.
        x: must be a contiguous matrix of BF16 or fp32.
        like: must have the same shape, dtype and device, if given.
    """
    if x.dim() != 2 or not x.is_contiguous():
        raise ValueError(f"{name} must be a contiguous matrix, not {_described(x)}")
    if x.dtype not in _DTYPES:
        raise ValueError(f"{name} must be bfloat16 or float32, not {x.dtype}")
    if like is not None and (x.shape, x.dtype, x.device) != (like.shape, like.dtype, like.device):
        raise ValueError(f"{name} must be {_described(like)}, not {_described(x)}")


def check_vector(name: str, x: Tensor, length: int, dtype: torch.dtype | None = None) -> None:
    """The same for a contiguous vector, of BF16 or fp32 unless `dtype` says what."""
    if x.shape != (length,) or not x.is_contiguous():
        raise ValueError(f"{name} must be a contiguous vector of {length}, not {_described(x)}")
    if x.dtype not in (_DTYPES if dtype is None else (dtype,)):
        raise ValueError(f"{name} has dtype {x.dtype}")


def check_row_width(x: Tensor) -> int:
    """D of x [T, D], if a row kernel takes it."""
    width = x.shape[1]
    if width % WIDTH_MULTIPLE or width > MAX_WIDTH:
        raise ValueError(f"rows of {width}: not a multiple of {WIDTH_MULTIPLE} up to {MAX_WIDTH}")
    return width


def _described(x: Tensor) -> str:
    return f"{list(x.shape)} {x.dtype} with strides {list(x.stride())} on {x.device}"
