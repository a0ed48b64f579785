# mypy: ignore-errors
"""The launcher of small_gemm.cu: one linear layer of a step of few tokens, cut into blocks.

`small_layers` says what runs in its epilogues. Legend: T tokens (up to MAX_TOKENS, a multiple of
16), D width of the residual stream, N outputs, K inputs.

Bytes moved: the weights once, 2 N K; the step's own rows stay in the L2 cache.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hotbed.rose.kernels.hopper.nvrtc import Function, compile_function, define, tile_map
from hotbed.rose.kernels.hopper.wgmma import product

MAX_TOKENS = 256
TOKEN_MULTIPLE = 16
HEAD_DIM = 128
"""The only one: an output tile is one head."""

_SOURCE = Path(__file__).with_name("small_gemm.cu")
_EPILOGUES = {"qkv": 0, "swiglu": 1, "residual": 2, "project": 3, "gelu": 4, "postnorm": 5}
_WIDE, _NARROW = 128, 64
_FEATURES = {name: _NARROW if name in ("residual", "postnorm") else _WIDE for name in _EPILOGUES}
_MULTIPROCESSORS = 132
# Of the 227 KiB a block may have, for tiles; 1 KiB is lost to their alignment.
_SHARED_BYTES = 226 * 1024
_K_TILE = 64
# Up to this K sharing it costs more than it saves at 128 tokens.
_SHALLOW = 2048
# Values of the residual stream that one block sums.
_PART = 64


class _Args(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in (
            "out", "scaled", "sums_in", "sums_out", "next_weight", "norm_weight", "norm_bias",
            "bias", "mean_part", "shift", "q_weight", "k_weight", "cos", "sin", "positions",
        )),
        *((name, ctypes.c_float) for name in ("eps", "head_eps", "inverse_width")),
        *((name, ctypes.c_int32) for name in (
            "k_steps", "row_stride", "second_row", "num_heads", "num_rotated",
        )),
    ]  # fmt: skip


@dataclass(slots=True)
class Stream:
    """The residual stream between layers.

    Attributes:
        rows: BF16 [T, D].
        scaled: BF16 [T, D], rows times the weight of the norm that comes next.
        sums: fp32 [T, D / 64, 2], sum and sum of squares of 64 values each.
        spare: like `sums`: where the next ones go, since blocks still read these.
    """

    rows: Tensor
    scaled: Tensor
    sums: Tensor
    spare: Tensor

    @staticmethod
    def empty(num_tokens: int, width: int, device: torch.device) -> Stream:
        """Memory for one."""
        rows = torch.empty(2, num_tokens, width, dtype=torch.bfloat16, device=device)
        sums = torch.empty(2, num_tokens, width // _PART, 2, dtype=torch.float32, device=device)
        return Stream(rows[0], rows[1], sums[0], sums[1])

    def arguments(self, eps: float) -> dict[str, float]:
        """Of a kernel that norms the stream."""
        width = self.rows.shape[1]
        return {"sums_in": self.sums.data_ptr(), "eps": eps, "inverse_width": 1 / width}


@dataclass(frozen=True, slots=True)
class Kernel:
    """What is compiled in: see `small_gemm.cu`."""

    tokens: int
    features: int
    split: int
    stages: int
    epilogue: str
    parts: int = 1

    def prologue(self) -> str:
        """What stands before the source."""
        return define(
            TOK=self.tokens,
            FT=self.features,
            SPLIT=self.split,
            STAGES=self.stages,
            EPILOGUE=_EPILOGUES[self.epilogue],
            PARTS=self.parts,
        ) + product("wgmma", self.tokens)

    def compiled(
        self, device: torch.device, shared_bytes: int, name: str = "small_gemm"
    ) -> Function:
        """The function on a device."""
        return compile_function(_SOURCE, self.prologue(), name, device, shared_bytes)


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a layer is cut into blocks.

    Attributes:
        split: blocks that share the K of a tile, a cluster.
        token_split: blocks that share its tokens.
        stages: of 64 columns of K on their way.
    """

    split: int
    token_split: int
    stages: int


def tiling_of(epilogue: str, tiles: int, k: int, num_tokens: int) -> Tiling:
    """How a step of T tokens is cut, as measured with the 0.6B Qwen3 shape.

    A block's time is the bytes that reach its multiprocessor: its tokens, its weights, and at a
    quarter of the speed what it adds up with its cluster. So beyond 64 tokens blocks take a share
    of the tokens, which costs reading the weights again from the L2 cache, before they share K.
    H200, 2026-11-30, us a launch in a chain, (split, token_split): QKV of 128 tokens (4, 1) 11.0,
    (2, 1) 8.2, (2, 2) 6.9; gate/up of 256 (1, 4) 13.3, (1, 2) 9.9; out of 256 (4, 2) 9.4, (2, 4)
    5.8; out of 64 (8, 1) 4.6, (4, 1) 3.7. In the whole chain (bench/small_steps.py, 2026-12-01), us
    of all layers: QKV of 64 tokens (2, 1) 643, (2, 2) 629; out of 128 (4, 1) 850, (2, 2) 827;
    gate/up of 128 with 6 stages 825, with 9 809, of 256 with 6 stages 1,166, with 4 1,144.
    """
    parts = -(-num_tokens // 64)
    if epilogue == "swiglu":
        token_split, most = min(2, parts), 2
    elif _FEATURES[epilogue] == _WIDE:
        token_split, most = parts if epilogue == "gelu" else max(parts, min(2, num_tokens // 32)), 2
    elif parts == 2:
        token_split, most = (2, 2) if k <= _SHALLOW else (1, 4)
    else:
        token_split, most = parts, 4
    split = most
    while split > 1 and (tiles * split * token_split > _MULTIPROCESSORS or (k // _K_TILE) % split):
        split //= 2
    features = _FEATURES[epilogue]
    room = _SHARED_BYTES // (2 * _K_TILE * (features + num_tokens // token_split))
    wanted = 12
    if epilogue == "swiglu":
        wanted = 12 if num_tokens // token_split <= 64 else 4
    elif token_split > 1 and features == _WIDE:
        wanted = 6
    return Tiling(split, token_split, min(k // _K_TILE // split, room, wanted))


class SmallGemm:
    """One linear layer without bias.

    Args:
        weight: BF16 [N, K], rows q, k, v or gate before up.
        epilogue: ``qkv``, ``swiglu``, ``residual``, ``project``, ``gelu`` or ``postnorm``.
    """

    def __init__(self, weight: Tensor, epilogue: str) -> None:
        self.weight, self.epilogue = weight, epilogue
        n, self._k = weight.shape
        self._features = _FEATURES[epilogue]
        self.tiles = n // self._features
        self._weight_map = tile_map(weight, rows=64)

    def __call__(self, x: Tensor, **arguments: float) -> None:
        """x [T, K] through the layer and its epilogue; `arguments` are fields of the kernel's."""
        tiling = tiling_of(self.epilogue, self.tiles, self._k, len(x))
        tokens = len(x) // tiling.token_split
        stage = _K_TILE * 2 * (self._features + tokens)
        exchange = 4 * tokens * (self._features + 4)
        shared_bytes = max(tiling.stages * stage, exchange) + 1024
        # The kinds that read sums read the stream, so their K is its width; one adds to it.
        parts = (len(self.weight) if self.epilogue == "postnorm" else self._k) // _PART
        kernel = Kernel(tokens, self._features, tiling.split, tiling.stages, self.epilogue, parts)
        function = kernel.compiled(x.device, shared_bytes)
        args = _Args(k_steps=self._k // _K_TILE // tiling.split, **arguments)
        function.launch(
            (self._weight_map, tile_map(x, rows=tokens), args),
            grid=(self.tiles * tiling.split, tiling.token_split),
            threads=2 * self._features + 32,
            shared_bytes=shared_bytes,
            cluster=(tiling.split, 1),
        )
