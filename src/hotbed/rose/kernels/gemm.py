"""GEMMs with what follows them in the epilogue, on Hopper, for steps of many rows.

    plain, bias     y = x W^T,  y = x W^T + b
    add             y = x W^T + y                            in place
    swiglu          y = silu(g) * u,  [g | u] = x W^T        W [2 F, D], gate first
    gelu_bias       y = gelu(x W^T + b)          `gemm_build.GELU_FIT`; gelu_tanh_bias by tanh

The accumulator is fp32, and what follows is computed from it, so the result is rounded once where
GEMM and activation round twice. Saved is what a kernel for the activation reads and the GEMM writes
before it: 4 T F bytes of BF16 each for GELU, 8 T F for SwiGLU. Kernels come from a folder
(`hotbed.rose.build_kernels`); any number of rows, columns and depth in multiples of 8. x and W are
BF16 or, both, FP8 with scales for their rows (`fp8`), by which the accumulator is multiplied first.

us a call, H200, 2026-12-01 (bench/gemm.py), the kernel in its tile of 128 x 128 against cuBLAS with
what follows it:

    rows                             256         512         640        768       1,024      8,192
    gate/up, SwiGLU, 0.6B shape   7.8 / 8.2  12.3 / 13.2  21 / 16    17 / 18    18 / 24   133 / 178
                     4B shape      43 / 44     72 / 81   132 / 97  106 / 132  145 / 166  1058 / 1242
    up, GELU, bge-m3 shape        9.6 / 7.8   9.2 / 10.6  16 / 12    14 / 14    14 / 18   101 / 129
        by tanh                   8.6 / 6.4    8.7 / 9.7  15 / 10    13 / 12    14 / 15    99 / 111

640 rows are 5 of the 6 tiles that clusters of two take: the sixth, without any, costs more than one
with rows. A cluster along the columns instead takes 13 us there for the 0.6B shape, as much as now
or 9 % more at 512 and 768, and up to 4 % more at 12,800 of the 4B shape.

Larger tiles gain up to 5 % at 8,192 rows and lose as much at others: 128 x 192 takes 137 us there
for SwiGLU where this takes 138, 102 and 108 for GELU. The residual is cuBLAS's own addmm: in an
epilogue it took 50 / 52 and 72 / 75 us at 8,192 rows of the 0.6B shape's out and down layers,
245 / 230 and 571 / 577 of the 4B shape's, and more than cuBLAS below.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.rose.kernels import files
from hotbed.rose.kernels.fp8 import DTYPE, MULTIPLE, Fp8Rows, gate_and_up, quantize_rows
from hotbed.rose.kernels.gemm_files import CLUSTER, TILE, Epilogue, GemmKernel, Operands

_log = logging.getLogger("hotbed.rose")

_WHAT = "fused GEMM"
# How many tiles lie side by side before the next row of tiles is begun: quack's own default.
_SWIZZLE = 8
# Epilogues in BF16 that beat cuBLAS and a kernel behind it, and from how many rows on.
MIN_ROWS: Mapping[Epilogue, int] = {"swiglu": 512, "gelu_bias": 512, "gelu_tanh_bias": 512}
# Of fewer rows only those that fill a cluster's tiles, but for so many rows.
_ENOUGH_ROWS, _MISSING_ROWS = 1024, 64
ALL_ROWS: Mapping[Epilogue, int] = dict.fromkeys(get_args(Epilogue), 0)
"""Every epilogue, for steps of any size: where the choice may not depend on that, and for FP8."""
_WITH_BIAS = ("bias", "gelu_bias", "gelu_tanh_bias")

Matrix = Tensor | Fp8Rows


def reference(
    epilogue: Epilogue,
    x: Matrix,
    weight: Matrix,
    bias: Tensor | None = None,
    added: Tensor | None = None,
) -> Tensor:
    """y in fp32."""
    y = x.float() @ weight.float().T
    if epilogue == "swiglu":
        gate, up = y.chunk(2, dim=-1)
        return F.silu(gate) * up
    if bias is not None:
        y = y + bias.float()
    if epilogue.startswith("gelu"):
        return F.gelu(y, approximate="tanh" if epilogue == "gelu_tanh_bias" else "none")
    return y if added is None else y + added.float()


def is_fast(num_rows: int, min_rows: int) -> bool:
    """Whether a kernel that beats cuBLAS from `min_rows` on does so for these."""
    fills = num_rows >= _ENOUGH_ROWS or -num_rows % (CLUSTER * TILE.m) <= _MISSING_ROWS
    return num_rows >= min_rows and fills


class FusedGemm:
    """One epilogue's kernel, loaded on a device.

    Args:
        kernel: which.
        function: the function in its file.
        device: where it runs.
        min_rows: `takes` steps of so many; 0 for steps of any size.
    """

    def __init__(
        self,
        kernel: GemmKernel,
        function: Callable[..., None],
        device: torch.device,
        min_rows: int,
    ) -> None:
        self.kernel = kernel
        self._function = function
        self._min_rows = min_rows
        num_sms = CLUSTER
        if device.type == "cuda":
            num_sms = torch.cuda.get_device_properties(device).multi_processor_count
        self._clusters = num_sms // CLUSTER

    def takes(self, x: Matrix) -> bool:
        """Whether it is the fastest for so many rows. Rows are fixed in a graph, so this is too."""
        return self._min_rows == 0 or is_fast(len(x), self._min_rows)

    def __call__(
        self,
        x: Matrix,
        weight: Matrix,
        bias: Tensor | None = None,
        added: Tensor | None = None,
    ) -> Tensor:
        """y [T, N], or [T, N / 2] for swiglu, BF16.

        Args:
            x: BF16 or FP8 [T, K], contiguous.
            weight: the same [N, K], contiguous; in FP8 for swiglu as `fp8.gate_and_up` makes it.
            bias: BF16 [N], for the epilogues that have one.
            added: BF16 [T, N], written over and returned, for `add`.
        """
        epilogue = self.kernel.epilogue
        _check(self.kernel, x, weight, bias, added)
        scales: tuple[Tensor, ...] = ()
        if isinstance(x, Fp8Rows) and isinstance(weight, Fp8Rows):
            of_columns = weight.scales_in_turn if epilogue == "swiglu" else weight.scales
            assert of_columns is not None, "checked above"
            scales = (of_columns[None], x.scales[None])
            x, weight = x.values, weight.values
        assert isinstance(x, Tensor), "checked above"
        assert isinstance(weight, Tensor), "checked above"
        out = added
        if out is None:
            columns = len(weight) // 2 if epilogue == "swiglu" else len(weight)
            out = torch.empty(len(x), columns, dtype=torch.bfloat16, device=x.device)
        activated = epilogue not in ("plain", "bias", "add")
        # x, W, result, matrix to add, (scales of columns and rows, bias, result behind an
        # activation, two buffers of split K), (clusters at a time, order of tiles, swizzle, three
        # of other schedulers), ragged batches, scales of blocks of x and of W. On torch's current
        # stream.
        self._function(
            *(x, weight, None if activated else out, added),
            (
                *scales,
                *(() if bias is None else (bias[None],)),
                *((out,) if activated else ()),
                *(None, None),
            ),
            (self._clusters, None, _SWIZZLE, None, None, None),
            *(None, None, None),
        )
        return out


class FusedGemms:
    """The fused GEMMs a folder has for a device; each is loaded when a layer first asks for it.

    Args:
        folder: of kernels.
        device: where they run.
        min_rows: the epilogues that are taken, and from how many rows on.
        operands: of which type.
    """

    def __init__(
        self,
        folder: Path,
        device: torch.device,
        *,
        min_rows: Mapping[Epilogue, int] = MIN_ROWS,
        operands: Operands = "bf16",
    ) -> None:
        self._folder, self._device, self._min_rows = folder, device, min_rows
        self._operands: Operands = operands
        self._loaded: dict[Epilogue, FusedGemm | None] = {}

    def get(self, epilogue: Epilogue) -> FusedGemm | None:
        """The epilogue's kernel, ready to be captured; None if it is not taken or not there."""
        if epilogue not in self._loaded:
            kernel, gemm = GemmKernel.chosen(epilogue, self._operands), None
            if epilogue in self._min_rows and (self._folder / kernel.file_name).is_file():
                gemm = load(self._folder, kernel, self._device, self._min_rows[epilogue])
                _log.info("%s on %s: %s", _WHAT, self._device, kernel.file_name)
            self._loaded[epilogue] = gemm
        return self._loaded[epilogue]


def load(folder: Path, kernel: GemmKernel, device: torch.device, min_rows: int) -> FusedGemm:
    """A kernel of a folder, loaded and run once: the first call moves the code to the device, which
    may not happen under capture.

    Raises:
        HotbedError: INVALID_INPUT if the file is not there or cannot be loaded.
    """
    function = files.load(folder / kernel.file_name, _WHAT)
    gemm = FusedGemm(kernel, function, device, min_rows)
    zeros = functools.partial(torch.zeros, dtype=torch.bfloat16, device=device)
    x: Matrix = zeros(1, 64)
    weight: Matrix = zeros(256, 64)
    if kernel.operands != "bf16":
        x, weight = quantize_rows(zeros(1, 64)), gate_and_up(quantize_rows(zeros(256, 64)))
    gemm(
        x,
        weight,
        zeros(256) if kernel.epilogue in _WITH_BIAS else None,
        zeros(1, 256) if kernel.epilogue == "add" else None,
    )
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return gemm


def open_gemms(
    folder: Path | None,
    device: torch.device,
    dtype: torch.dtype,
    *,
    min_rows: Mapping[Epilogue, int] = MIN_ROWS,
    operands: Operands = "bf16",
) -> FusedGemms | None:
    """The fused GEMMs in a folder, or None; says in the log why there are none on a GPU.

    Args:
        folder: of kernels, as `hotbed.rose.build_kernels` makes it.
        device: where they run.
        dtype: of the layers.
        min_rows: see `FusedGemms`.
        operands: see `FusedGemms`.
    """
    if device.type != "cuda":
        return None
    if dtype != torch.bfloat16:
        reason: str | None = f"they compute bfloat16, not {str(dtype).removeprefix('torch.')}"
    else:
        reason = files.missing(folder, device)
        if reason is None and folder is not None:
            names = (GemmKernel.chosen(epilogue, operands).file_name for epilogue in min_rows)
            if any((folder / name).is_file() for name in names):
                return FusedGemms(folder, device, min_rows=min_rows, operands=operands)
            reason = f"{folder} has none for {operands}"
    _log.info("no fused GEMMs on %s: %s", device, reason)
    return None


def fits(epilogue: Epilogue, weight: Tensor) -> bool:
    """Whether a weight [N, K] has rows, and the result has rows, of multiples of 16 bytes."""
    columns, depth = weight.shape
    return not (depth % 8 or columns % (16 if epilogue == "swiglu" else 8))


def _check(
    kernel: GemmKernel, x: Matrix, weight: Matrix, bias: Tensor | None, added: Tensor | None
) -> None:
    """Refuse what a kernel would misread; a ValueError here is a bug in the caller."""
    epilogue, is_fp8 = kernel.epilogue, kernel.operands != "bf16"
    if isinstance(x, Fp8Rows) != is_fp8 or isinstance(weight, Fp8Rows) != is_fp8:
        raise ValueError(f"{kernel.file_name} takes operands of {kernel.operands}")
    if isinstance(x, Fp8Rows) and isinstance(weight, Fp8Rows):
        for name, rows in (("x.scales", x), ("weight.scales", weight)):
            _check_tensor(name, rows.scales, (len(rows),), torch.float32)
        if epilogue == "swiglu":
            if weight.scales_in_turn is None:
                raise ValueError("swiglu needs the weight's scales in turn")
            _check_tensor("scales_in_turn", weight.scales_in_turn, (len(weight),), torch.float32)
        x, weight = x.values, weight.values
    assert isinstance(x, Tensor), "checked above"
    assert isinstance(weight, Tensor), "checked above"
    columns, depth = weight.shape
    operand = DTYPE if is_fp8 else torch.bfloat16
    _check_tensor("x", x, (len(x), depth), operand)
    _check_tensor("weight", weight, (columns, depth), operand)
    if (bias is not None) != (epilogue in _WITH_BIAS):
        raise ValueError(f"{epilogue} {'needs a' if epilogue in _WITH_BIAS else 'takes no'} bias")
    if bias is not None:
        _check_tensor("bias", bias, (columns,), torch.bfloat16)
    if (added is not None) != (epilogue == "add"):
        raise ValueError(f"{epilogue} {'needs a' if epilogue == 'add' else 'takes no'} matrix")
    if added is not None:
        _check_tensor("added", added, (len(x), columns), torch.bfloat16)
    multiple = MULTIPLE if is_fp8 else 8
    if depth % multiple or not fits(epilogue, weight):
        raise ValueError(f"a weight of {columns} x {depth}: both must be multiples of {multiple}")


def _check_tensor(name: str, x: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if x.shape != shape or not x.is_contiguous() or x.dtype != dtype:
        raise ValueError(
            f"{name} must be contiguous {str(dtype).removeprefix('torch.')} {list(shape)}, not "
            f"{x.dtype} {list(x.shape)} with strides {list(x.stride())}"
        )
    if x.data_ptr() % 16:
        raise ValueError(f"{name} must begin at a multiple of 16 bytes")
