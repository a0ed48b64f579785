"""GEMMs with what follows them in the epilogue, on Hopper, for steps of many rows.

    swiglu          y = silu(g) * u,  [g | u] = x W^T        W [2 F, D], gate first
    gelu_bias       y = gelu(x W^T + b)                      exact; gelu_tanh_bias by tanh
    residual        r += x W^T                               in place

The accumulator is fp32, and what follows is computed from it, so the result is rounded once where
GEMM and activation round twice. Saved is what a kernel for the activation reads and the GEMM writes
before it: 4 T F bytes of BF16 each for GELU, 8 T F for SwiGLU. Kernels come from a folder
(`hotbed.rose.build_kernels`); any number of rows, columns and depth in multiples of 8.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.rose.kernels import files
from hotbed.rose.kernels.gemm_files import CLUSTER, Epilogue, GemmTile, kernels_in

_log = logging.getLogger("hotbed.rose")

_WHAT = "fused GEMM"
# How many tiles lie side by side before the next row of tiles is begun: quack's own default.
_SWIZZLE = 8


@dataclass(frozen=True, slots=True)
class GemmRule:
    """When a fused GEMM is taken, and in which tile.

    Attributes:
        min_rows: with fewer, cuBLAS and a kernel of its own behind it are faster.
        rates: how fast each tile computes a full wave, relative to the others.
    """

    min_rows: int
    rates: Mapping[GemmTile, float]


_T128X128, _T128X192 = GemmTile(128, 128, True), GemmTile(128, 192, True)
_T256X128, _T256X192 = GemmTile(256, 128, False), GemmTile(256, 192, False)
_T128X256 = GemmTile(128, 256, False)

# H200, 2026-11-30, us, quack in its default tile of 128 x 192 against cuBLAS and what follows it:
#   gate/up of the 0.6B shape, SwiGLU:  512 rows 11.6 / 13.8, 4,096 82.7 / 96.9, 8,192 153 / 201
#   residual at 8,192 rows:             o 52 / 63, down 74 / 94; at 128 rows 12.8 / 6.6
RULES: dict[Epilogue, GemmRule] = {
    "swiglu": GemmRule(512, {_T128X192: 1.0, _T128X128: 0.9, _T256X128: 1.0, _T256X192: 1.0}),
    "gelu_bias": GemmRule(1024, {_T128X192: 1.0, _T128X128: 0.9, _T256X128: 1.0, _T256X192: 1.0}),
    "gelu_tanh_bias": GemmRule(1024, {_T128X192: 1.0, _T128X128: 0.9, _T256X128: 1.0}),
    "residual": GemmRule(4096, {_T128X192: 1.0, _T128X128: 0.9, _T256X128: 1.0, _T128X256: 1.0}),
}


def reference(
    epilogue: Epilogue, x: Tensor, weight: Tensor, operand: Tensor | None = None
) -> Tensor:
    """y in fp32; `operand` is the bias or the residual."""
    y = x.float() @ weight.float().T
    if epilogue == "swiglu":
        gate, up = y.chunk(2, dim=-1)
        return F.silu(gate) * up
    assert operand is not None
    y += operand.float()
    if epilogue == "residual":
        return y
    return F.gelu(y, approximate="tanh" if epilogue == "gelu_tanh_bias" else "none")


class FusedGemm:
    """One epilogue's kernels, loaded on a device.

    Args:
        epilogue: which.
        kernels: by tile, of one folder; at least one.
        device: where they run.
        rule: when to take which.
    """

    def __init__(
        self,
        epilogue: Epilogue,
        kernels: Mapping[GemmTile, Callable[..., None]],
        device: torch.device,
        rule: GemmRule,
    ) -> None:
        self.epilogue = epilogue
        self._kernels = kernels
        self._rule = rule
        self._num_sms = (
            torch.cuda.get_device_properties(device).multi_processor_count
            if device.type == "cuda"
            else CLUSTER
        )

    def takes(self, x: Tensor) -> bool:
        """Whether it is the fastest for so many rows. Rows are fixed in a graph, so this is too."""
        return len(x) >= self._rule.min_rows

    def __call__(self, x: Tensor, weight: Tensor, operand: Tensor | None = None) -> Tensor:
        """y [T, N], or [T, N / 2] for swiglu.

        Args:
            x: BF16 [T, K], contiguous.
            weight: BF16 [N, K], contiguous.
            operand: BF16, bias [N], or residual [T, N], which is written over and returned.
        """
        _check(self.epilogue, x, weight, operand)
        columns = len(weight) // 2 if self.epilogue == "swiglu" else len(weight)
        if self.epilogue == "residual":
            assert operand is not None, "checked above"
            out = operand
        else:
            out = torch.empty(len(x), columns, dtype=x.dtype, device=x.device)
        bias = () if self.epilogue in ("swiglu", "residual") else (operand[None],)  # type: ignore[index]
        # x, W, no result before the activation, what is added to the product, (bias, result, two
        # buffers of split K), (clusters at a time, order of tiles, swizzle, three of other
        # schedulers), ragged batches, scales of x and of W. On torch's current stream.
        self._kernels[self._tile(len(x), len(weight))](
            *(x, weight, None, out if self.epilogue == "residual" else None),
            (*bias, out, None, None),
            (self._num_sms // CLUSTER, None, _SWIZZLE, None, None, None),
            *(None, None, None),
        )
        return out

    def _tile(self, num_rows: int, num_columns: int) -> GemmTile:
        return best_tile(num_rows, num_columns, tuple(self._kernels), self._rule, self._num_sms)


def best_tile(
    num_rows: int, num_columns: int, tiles: Sequence[GemmTile], rule: GemmRule, num_sms: int
) -> GemmTile:
    """The tile with the shortest time: waves of tiles over the multiprocessors, each as long as a
    tile is large. Tiles that the rule does not know are left for last.
    """

    def time(tile: GemmTile) -> float:
        rate = rule.rates.get(tile, 0.0)
        # A cluster of two takes two tiles of rows: of an odd number one is empty.
        tall = CLUSTER * math.ceil(num_rows / (CLUSTER * tile.m))
        waves = math.ceil(tall * math.ceil(num_columns / tile.n) / num_sms)
        return waves * tile.m * tile.n / rate if rate else math.inf

    return min(tiles, key=time)


class FusedGemms:
    """The fused GEMMs a folder has for a device; each is loaded when a layer first asks for it.

    Args:
        folder: of kernels.
        device: where they run.
        rules: when to take which.
    """

    def __init__(
        self,
        folder: Path,
        device: torch.device,
        *,
        rules: Mapping[Epilogue, GemmRule] = RULES,
    ) -> None:
        self._folder, self._device, self._rules = folder, device, rules
        self._loaded: dict[Epilogue, FusedGemm | None] = {}

    def get(self, epilogue: Epilogue) -> FusedGemm | None:
        """The epilogue's kernels, ready to be captured; None if the folder has none."""
        if epilogue not in self._loaded:
            self._loaded[epilogue] = self._load(epilogue)
        return self._loaded[epilogue]

    def _load(self, epilogue: Epilogue) -> FusedGemm | None:
        found = [k for k in kernels_in(self._folder) if k.epilogue == epilogue]
        if not found:
            return None
        kernels = {k.tile: files.load(self._folder / k.file_name, _WHAT) for k in found}
        for tile, kernel in kernels.items():
            # The first call moves the code to the device, which may not happen under capture.
            rule = GemmRule(0, {tile: 1.0})
            _run_once(FusedGemm(epilogue, {tile: kernel}, self._device, rule), self._device)
        _log.info("%s on %s: %s", _WHAT, self._device, ", ".join(k.file_name for k in found))
        return FusedGemm(epilogue, kernels, self._device, self._rules[epilogue])


def open_gemms(folder: Path | None, device: torch.device, dtype: torch.dtype) -> FusedGemms | None:
    """The fused GEMMs in a folder, or None; says in the log why there are none on a GPU.

    Args:
        folder: of kernels, as `hotbed.rose.build_kernels` makes it.
        device: where they run.
        dtype: of the layers.
    """
    if device.type != "cuda":
        return None
    if dtype != torch.bfloat16:
        reason: str | None = f"they compute bfloat16, not {str(dtype).removeprefix('torch.')}"
    else:
        reason = files.missing(folder, device)
        if reason is None and folder is not None and not kernels_in(folder):
            reason = f"{folder} has none"
    if reason is None and folder is not None:
        return FusedGemms(folder, device)
    _log.info("no fused GEMMs on %s: %s", device, reason)
    return None


def _run_once(gemm: FusedGemm, device: torch.device) -> None:
    zeros = functools.partial(torch.zeros, dtype=torch.bfloat16, device=device)
    x, weight = zeros(1, 64), zeros(256, 64)
    operand = {"swiglu": None, "residual": zeros(1, 256)}.get(gemm.epilogue, zeros(256))
    gemm(x, weight, operand)
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def fits(epilogue: Epilogue, weight: Tensor) -> bool:
    """Whether a weight [N, K] has rows, and the result has rows, of multiples of 16 bytes."""
    columns, depth = weight.shape
    return not (depth % 8 or columns % (16 if epilogue == "swiglu" else 8))


def _check(epilogue: Epilogue, x: Tensor, weight: Tensor, operand: Tensor | None) -> None:
    """Refuse what a kernel would misread; a ValueError here is a bug in the caller."""
    columns, depth = weight.shape
    shapes: dict[str, tuple[Tensor, tuple[int, ...]]] = {
        "x": (x, (len(x), depth)),
        "weight": (weight, (columns, depth)),
    }
    if epilogue != "swiglu":
        if operand is None:
            raise ValueError(f"{epilogue} needs a bias or a residual")
        expected = (len(x), columns) if epilogue == "residual" else (columns,)
        shapes["operand"] = (operand, expected)
    elif operand is not None:
        raise ValueError("swiglu takes neither bias nor residual")
    for name, (tensor, shape) in shapes.items():
        if tensor.shape != shape or not tensor.is_contiguous() or tensor.dtype != torch.bfloat16:
            raise ValueError(
                f"{name} must be contiguous bfloat16 {list(shape)}, not {tensor.dtype} "
                f"{list(tensor.shape)} with strides {list(tensor.stride())}"
            )
        if tensor.data_ptr() % 16:
            raise ValueError(f"{name} must begin at a multiple of 16 bytes")
    if not fits(epilogue, weight):
        raise ValueError(f"a weight of {columns} x {depth}: both must be multiples of 8")
