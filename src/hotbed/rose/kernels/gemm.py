"""GEMMs with what follows them in the epilogue, on Hopper, for steps of many rows.

    swiglu          y = silu(g) * u,  [g | u] = x W^T        W [2 F, D], gate first
    gelu_bias       y = gelu(x W^T + b)                      exact; gelu_tanh_bias by tanh

The accumulator is fp32, and what follows is computed from it, so the result is rounded once where
GEMM and activation round twice. Saved is what a kernel for the activation reads and the GEMM writes
before it: 4 T F bytes of BF16 each for GELU, 8 T F for SwiGLU. Kernels come from a folder
(`hotbed.rose.build_kernels`); any number of rows, columns and depth in multiples of 8.

us a call, H200, 2026-11-30 (bench/gemm.py), the kernel in its tile of 128 x 128 against cuBLAS with
what follows it:

    rows                                 256         512        1,024      4,096       8,192
    gate/up, SwiGLU, 0.6B shape     7.8 / 8.4  12.3 / 13.2   18 / 24    69 / 95   134 / 181
                     4B shape      43.3 / 44.5    73 / 81   146 / 169  514 / 592  1129 / 1325
    up, GELU, bge-m3 shape        10.3 / 7.4   10.9 / 10.8   17 / 18    58 / 68   114 / 131
        by tanh                    8.4 / 6.3    8.7 / 9.7    14 / 16    51 / 62   100 / 115

Larger tiles gain up to 5 % at 8,192 rows and lose as much at others: 128 x 192 takes 131 us there
for SwiGLU, 94 and 117 for the two GELUs. The residual is cuBLAS's own addmm: in an epilogue it took
50 / 52 and 72 / 75 us at 8,192 rows of the 0.6B shape's out and down layers, 245 / 230 and
571 / 577 of the 4B shape's, and more than cuBLAS below.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.rose.kernels import files
from hotbed.rose.kernels.gemm_files import CLUSTER, Epilogue, GemmKernel

_log = logging.getLogger("hotbed.rose")

_WHAT = "fused GEMM"
# How many tiles lie side by side before the next row of tiles is begun: quack's own default.
_SWIZZLE = 8
# With fewer rows cuBLAS and a kernel of its own behind it are faster.
MIN_ROWS: Mapping[Epilogue, int] = {"swiglu": 512, "gelu_bias": 1024, "gelu_tanh_bias": 512}


def reference(epilogue: Epilogue, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y in fp32."""
    y = x.float() @ weight.float().T
    if epilogue == "swiglu":
        gate, up = y.chunk(2, dim=-1)
        return F.silu(gate) * up
    assert bias is not None
    return F.gelu(y + bias.float(), approximate="tanh" if epilogue == "gelu_tanh_bias" else "none")


class FusedGemm:
    """One epilogue's kernel, loaded on a device.

    Args:
        epilogue: which.
        kernel: the function in its file.
        device: where it runs.
        min_rows: `takes` steps of so many.
    """

    def __init__(
        self,
        epilogue: Epilogue,
        kernel: Callable[..., None],
        device: torch.device,
        min_rows: int,
    ) -> None:
        self.epilogue = epilogue
        self._kernel = kernel
        self._min_rows = min_rows
        num_sms = CLUSTER
        if device.type == "cuda":
            num_sms = torch.cuda.get_device_properties(device).multi_processor_count
        self._clusters = num_sms // CLUSTER

    def takes(self, x: Tensor) -> bool:
        """Whether it is the fastest for so many rows. Rows are fixed in a graph, so this is too."""
        return len(x) >= self._min_rows

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """y [T, N], or [T, N / 2] for swiglu.

        Args:
            x: BF16 [T, K], contiguous.
            weight: BF16 [N, K], contiguous.
            bias: BF16 [N]; None for swiglu.
        """
        _check(self.epilogue, x, weight, bias)
        columns = len(weight) // 2 if bias is None else len(weight)
        out = torch.empty(len(x), columns, dtype=x.dtype, device=x.device)
        # x, W, no result before the activation, nothing added to the product, (bias, result, two
        # buffers of split K), (clusters at a time, order of tiles, swizzle, three of other
        # schedulers), ragged batches, scales of x and of W. On torch's current stream.
        self._kernel(
            *(x, weight, None, None),
            (*(() if bias is None else (bias[None],)), out, None, None),
            (self._clusters, None, _SWIZZLE, None, None, None),
            *(None, None, None),
        )
        return out


class FusedGemms:
    """The fused GEMMs a folder has for a device; each is loaded when a layer first asks for it.

    Args:
        folder: of kernels.
        device: where they run.
        min_rows: from how many rows on each is taken.
    """

    def __init__(
        self,
        folder: Path,
        device: torch.device,
        *,
        min_rows: Mapping[Epilogue, int] = MIN_ROWS,
    ) -> None:
        self._folder, self._device, self._min_rows = folder, device, min_rows
        self._loaded: dict[Epilogue, FusedGemm | None] = {}

    def get(self, epilogue: Epilogue) -> FusedGemm | None:
        """The epilogue's kernel, ready to be captured; None if the folder lacks it."""
        if epilogue not in self._loaded:
            kernel, gemm = GemmKernel(epilogue), None
            if (self._folder / kernel.file_name).is_file():
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
    gemm = FusedGemm(kernel.epilogue, function, device, min_rows)
    zeros = functools.partial(torch.zeros, dtype=torch.bfloat16, device=device)
    gemm(zeros(1, 64), zeros(256, 64), None if kernel.epilogue == "swiglu" else zeros(256))
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return gemm


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
        if reason is None and folder is not None:
            names = (GemmKernel(epilogue).file_name for epilogue in MIN_ROWS)
            if any((folder / name).is_file() for name in names):
                return FusedGemms(folder, device)
            reason = f"{folder} has none"
    _log.info("no fused GEMMs on %s: %s", device, reason)
    return None


def fits(epilogue: Epilogue, weight: Tensor) -> bool:
    """Whether a weight [N, K] has rows, and the result has rows, of multiples of 16 bytes."""
    columns, depth = weight.shape
    return not (depth % 8 or columns % (16 if epilogue == "swiglu" else 8))


def _check(epilogue: Epilogue, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Refuse what a kernel would misread; a ValueError here is a bug in the caller."""
    columns, depth = weight.shape
    shapes: dict[str, tuple[Tensor, tuple[int, ...]]] = {
        "x": (x, (len(x), depth)),
        "weight": (weight, (columns, depth)),
    }
    if (bias is None) != (epilogue == "swiglu"):
        raise ValueError(f"{epilogue} {'takes no' if epilogue == 'swiglu' else 'needs a'} bias")
    if bias is not None:
        shapes["bias"] = (bias, (columns,))
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
