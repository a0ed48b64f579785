"""Products of a layer with every pass between them inside, from a folder (`bench.large_build`).

Deferred norms: a row's factor commutes with a product. With r the sum that a norm reads,

    RMSNorm(r) W^T        = rstd(r) (r (w * W)^T)
    LayerNorm(r) W^T + b  = rstd(r) (r (w * W)^T) - rstd(r) mean(r) (W w) + (W b' + b)

so the norm's weight w goes into W, sums over r's rows into the epilogue of the product that makes
r, and what is left into the epilogue of the one that reads r.

    qkv       rotate(norm_of_head(rstd[t] x W^T)) of q and k, rstd[t] x W^T of v
    fp8_qkv   the same of x and W in FP8, with their scales instead of rstd
    fp8_gelu  gelu(x W^T + b) of x and W in FP8, as ROSE has it
    add       y = x W^T + residual, written over it; sums[t, i] of y^2 over columns of tile i
    swiglu    silu(g) * u, [g | u] = rstd[t] x W^T
    ln_bias   s[t] x W^T - t[t] wg + wb
    ln_gelu   gelu of that, exact
    ln_add    y = x W^T + b + (r s[t] - t[t]) w, written over r; sums of y and of y^2 by tile

Rotation needs the two values of a pair side by side, where the weights have them half a head apart:
W's rows of q and k, and the weights of the heads' norms, are put in that order (`in_pairs`), which
leaves the products of q and k as they were. v passes through the same arithmetic with frequency 0.

Each comes in several tiles, some with K shared by several thread blocks, whose sums are added in
order. Few rows want small tiles, so that all multiprocessors have one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from hotbed.rose.kernels import files
from hotbed.rose.kernels.fp8 import Fp8Rows
from hotbed.rose.kernels.gemm_files import CLUSTER, TILE, GemmTile

GELU_FITS = {
    "fit1": (0.80015704, 0.03470091),
    "fit2": (0.797507882, 0.0370056482, -0.000351517129),
}
"""gelu(x) = x / 2 (1 + tanh(x P(x^2))): coefficients of P. Beyond x^2 = `GELU_LIMIT` tanh is 1.

erf(x / sqrt 2) = tanh(x P(x^2)) has an even P. These two miss gelu by 2.71e-4 and 2.52e-5 at most;
the usual form by tanh is the first with other numbers and misses by 4.74e-4. The instruction for
tanh is itself off by up to 2^-11 of its result.
"""
GELU_LIMIT = 36.0
HEAD_DIM, HEAD_EPS = 128, 1e-6
"""Baked into the kernels of q, k and v: Qwen3's."""


@dataclass(frozen=True)
class Variant:
    """One kernel.

    Attributes:
        name: of the product.
        tile: of its result.
        split: how many thread blocks share K.
        form: of GELU, where it is not quack's with erf; see `GELU_FITS`.
    """

    name: str
    tile: GemmTile = TILE
    split: int = 1
    form: str = ""

    @property
    def label(self) -> str:
        """What tells it from others of the same product."""
        return self.tile.name + (f"k{self.split}" if self.split > 1 else "") + self.form

    @property
    def file_name(self) -> str:
        return f"{self.name}_{self.label}.so"


def _variants() -> tuple[Variant, ...]:
    half, narrow, small = (GemmTile(m, n, True) for m, n in ((64, 128), (128, 64), (64, 64)))
    wide = GemmTile(128, 192, True)
    # A head's norm wants it in one tile; sums by tile want N a multiple of it, so none of 192. Two
    # spill some bytes of registers: ln_gelu of 192, ln_add of four blocks.
    tiles = {
        "qkv": (TILE, half),
        "fp8_qkv": (TILE,),
        "fp8_gelu": (TILE,),
        "swiglu": (TILE, half, wide),
        "ln_bias": (TILE, half, wide),
        "ln_gelu": (TILE, half, wide),
        "add": (TILE, half, narrow, small),
        "ln_add": (TILE, half, narrow, small),
    }
    found = [Variant(name, tile) for name, of_name in tiles.items() for tile in of_name]
    shared = (("add", TILE, 2), ("add", TILE, 4), ("add", half, 2), ("ln_add", TILE, 4))
    fits = [(n, f) for n in ("ln_gelu", "fp8_gelu") for f in GELU_FITS]
    return (
        *found,
        *(Variant(name, tile, split) for name, tile, split in (*shared, ("ln_add", half, 2))),
        *(Variant(name, form=form) for name, form in fits),
    )


VARIANTS = _variants()
"""The first of each product is the one for many rows."""


@dataclass(frozen=True)
class Columns:
    """What the QKV product's epilogue reads for each of its N columns, fp32 [1, N].

    Attributes:
        turns: of each pair, its frequency / 2 pi as a sum of two numbers, one in each column of the
            pair, so that angles keep their bits at large positions; 0 for v.
        normed: weight of the head's norm; 0 for v.
        kept: 1 for v, which has no norm, else 0.
    """

    turns: Tensor
    normed: Tensor
    kept: Tensor

    @staticmethod
    def of(frequencies: Tensor, q_norm: Tensor, k_norm: Tensor, heads: int, kv: int) -> Columns:
        """Args: frequencies fp32 [H/2], weights of the norms [H], numbers of heads."""
        exact = frequencies.double() / (2 * math.pi)
        high = exact.float()
        head = torch.stack([high, (exact - high.double()).float()], dim=-1).view(-1)
        rest = head.new_zeros(kv * HEAD_DIM)
        q, k = in_pairs(q_norm.float()), in_pairs(k_norm.float())
        rows = [
            torch.cat([head.repeat(heads + kv), rest]),
            torch.cat([q.repeat(heads), k.repeat(kv), rest]),
            torch.cat([rest.new_zeros((heads + kv) * HEAD_DIM), rest + 1]),
        ]
        return Columns(*(row[None].contiguous() for row in rows))


@dataclass(frozen=True)
class Rows:
    """Factors of LayerNorm, fp32 [1, T] each: 1 / std, and mean / std."""

    scale: Tensor
    shift: Tensor


class Products(Protocol):
    """The kernels; x [T, K] and weights [N, K] BF16, everything else fp32, of columns [1, N]."""

    def qkv(self, x: Tensor, weight: Tensor, rstd: Tensor, at: Tensor, columns: Columns) -> Tensor:
        """[T, N], from the rows' factors and positions, fp32 [1, T]."""
        ...

    def fp8_qkv(self, x: Fp8Rows, weight: Fp8Rows, at: Tensor, columns: Columns) -> Tensor:
        """[T, N] in BF16."""
        ...

    def fp8_gelu(self, x: Fp8Rows, weight: Fp8Rows, bias: Tensor) -> Tensor:
        """[T, N] in BF16."""
        ...

    def add_(self, x: Tensor, weight: Tensor, residual: Tensor) -> Tensor:
        """sums [T, N / n] of the squares of what is written over `residual` [T, N], by tile."""
        ...

    def swiglu(self, x: Tensor, weight: Tensor, rstd: Tensor) -> Tensor:
        """[T, N / 2]; gate first in `weight`."""
        ...

    def ln_bias(
        self, x: Tensor, weight: Tensor, norm: Rows, wg: Tensor, wb: Tensor, *, gelu: bool
    ) -> Tensor:
        """[T, N]."""
        ...

    def ln_add_(
        self, x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor, norm: Rows, w: Tensor
    ) -> tuple[Tensor, Tensor]:
        """sums and sums of squares [T, N / n] of what is written over `residual`, by tile."""
        ...


def in_pairs(rows: Tensor) -> Tensor:
    """Rows of heads [n 128, ...] so that i and i + 64 of a head lie side by side."""
    heads = rows.view(-1, 2, HEAD_DIM // 2, *rows.shape[1:])
    return heads.transpose(1, 2).reshape(rows.shape)


class References:
    """The products in plain torch: fp32, rounded once to x's dtype."""

    def qkv(self, x: Tensor, weight: Tensor, rstd: Tensor, at: Tensor, columns: Columns) -> Tensor:
        y = (x.float() @ weight.float().T) * rstd[0][:, None]
        heads = y.view(len(y), -1, HEAD_DIM)
        of_head = torch.rsqrt(heads.square().mean(-1, keepdim=True) + HEAD_EPS)
        y = y * (of_head.expand_as(heads).flatten(1) * columns.normed + columns.kept)
        high, low = columns.turns[0].double().view(-1, 2).unbind(-1)
        angles = at[0].double()[:, None] * (high + low) * (2 * math.pi)
        cos, sin = angles.cos().float(), angles.sin().float()
        first, second = y.view(len(y), -1, 2).unbind(-1)
        pairs = torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1)
        return pairs.flatten(1).to(x.dtype)

    def fp8_qkv(self, x: Fp8Rows, weight: Fp8Rows, at: Tensor, columns: Columns) -> Tensor:
        ones = x.scales.new_ones(1, len(x))
        return self.qkv(x.float(), weight.float(), ones, at, columns)

    def fp8_gelu(self, x: Fp8Rows, weight: Fp8Rows, bias: Tensor) -> Tensor:
        return F.gelu(x.float() @ weight.float().T + bias).bfloat16()

    def add_(self, x: Tensor, weight: Tensor, residual: Tensor) -> Tensor:
        y = x.float() @ weight.float().T + residual.float()
        residual.copy_(y)
        return _by_tile(y.square())

    def swiglu(self, x: Tensor, weight: Tensor, rstd: Tensor) -> Tensor:
        gate, up = ((x.float() @ weight.float().T) * rstd[0][:, None]).chunk(2, dim=-1)
        return (F.silu(gate) * up).to(x.dtype)

    def ln_bias(
        self, x: Tensor, weight: Tensor, norm: Rows, wg: Tensor, wb: Tensor, *, gelu: bool
    ) -> Tensor:
        y = x.float() @ weight.float().T
        y = y * norm.scale[0][:, None] - norm.shift[0][:, None] * wg + wb
        return (F.gelu(y) if gelu else y).to(x.dtype)

    def ln_add_(
        self, x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor, norm: Rows, w: Tensor
    ) -> tuple[Tensor, Tensor]:
        normed = residual.float() * norm.scale[0][:, None] - norm.shift[0][:, None]
        y = x.float() @ weight.float().T + bias + normed * w
        residual.copy_(y)
        return _by_tile(y), _by_tile(y.square())


def _by_tile(y: Tensor) -> Tensor:
    return y.view(len(y), -1, TILE.n).sum(-1)


Shape = tuple[str, int, int, int]
"""A product and its sizes: name, rows, columns, depth."""


class Kernels:
    """The same from a folder, on a card.

    Attributes:
        usual: the variant of each product, its first at the start.
        chosen: the variant of products of some sizes, where it is another.
        taken: the sizes of the last product.
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        self._run = {v: files.load(folder / v.file_name, f"large {v.name}") for v in VARIANTS}
        sms = torch.cuda.get_device_properties(device).multi_processor_count
        self._scheduler = (sms // CLUSTER, None, 8, None, None, None)
        self.usual = {variant.name: variant for variant in reversed(VARIANTS)}
        self.chosen: dict[Shape, Variant] = {}
        self.taken: Shape | None = None
        self._shared: dict[tuple[Variant, int, int], tuple[Tensor, Tensor]] = {}

    def qkv(self, x: Tensor, weight: Tensor, rstd: Tensor, at: Tensor, columns: Columns) -> Tensor:
        return self._qkv("qkv", x, weight, (rstd,), at, columns)

    def fp8_qkv(self, x: Fp8Rows, weight: Fp8Rows, at: Tensor, columns: Columns) -> Tensor:
        scales = (weight.scales[None], x.scales[None])
        return self._qkv("fp8_qkv", x.values, weight.values, scales, at, columns)

    def fp8_gelu(self, x: Fp8Rows, weight: Fp8Rows, bias: Tensor) -> Tensor:
        out = torch.empty(len(x), len(weight), dtype=torch.bfloat16, device=bias.device)
        operands = (weight.scales[None], x.scales[None], bias, out)
        variant = self._choose("fp8_gelu", x.values, weight.values)
        self._call(variant, x.values, weight.values, None, None, operands)
        return out

    def add_(self, x: Tensor, weight: Tensor, residual: Tensor) -> Tensor:
        variant = self._choose("add", x, weight)
        sums = _sums(residual, variant)
        self._call(variant, x, weight, residual, residual, (sums,))
        return sums

    def swiglu(self, x: Tensor, weight: Tensor, rstd: Tensor) -> Tensor:
        out = x.new_empty(len(x), len(weight) // 2)
        self._call(self._choose("swiglu", x, weight), x, weight, None, None, (rstd, out))
        return out

    def ln_bias(
        self, x: Tensor, weight: Tensor, norm: Rows, wg: Tensor, wb: Tensor, *, gelu: bool
    ) -> Tensor:
        out = x.new_empty(len(x), len(weight))
        operands = (norm.scale, norm.shift, wg, wb)
        if gelu:
            variant = self._choose("ln_gelu", x, weight)
            self._call(variant, x, weight, None, None, (*operands, out))
        else:
            self._call(self._choose("ln_bias", x, weight), x, weight, out, None, operands)
        return out

    def ln_add_(
        self, x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor, norm: Rows, w: Tensor
    ) -> tuple[Tensor, Tensor]:
        variant = self._choose("ln_add", x, weight)
        sums, squares = _sums(residual, variant), _sums(residual, variant)
        operands = (bias, norm.scale, norm.shift, w, sums, squares)
        self._call(variant, x, weight, residual, residual, operands)
        return sums, squares

    def _qkv(
        self,
        name: str,
        x: Tensor,
        weight: Tensor,
        factors: tuple[Tensor, ...],
        at: Tensor,
        columns: Columns,
    ) -> Tensor:
        out = x.new_empty(len(x), len(weight), dtype=torch.bfloat16)
        # The width of a head is baked in: its argument is None.
        operands = (*factors, at, columns.turns, None, columns.normed, columns.kept)
        self._call(self._choose(name, x, weight), x, weight, out, None, operands)
        return out

    def _choose(self, name: str, x: Tensor, weight: Tensor) -> Variant:
        self.taken = (name, len(x), *weight.shape)
        return self.chosen.get(self.taken, self.usual[name])

    def _call(
        self,
        variant: Variant,
        x: Tensor,
        weight: Tensor,
        out: Tensor | None,
        added: Tensor | None,
        operands: tuple[Tensor | None, ...],
    ) -> None:
        shared: tuple[Tensor | None, ...] = (None, None)
        if variant.split > 1:
            shared = self._shared_of(variant, x, weight)
        self._run[variant](
            x, weight, out, added, (*operands, *shared), self._scheduler, None, None, None
        )

    def _shared_of(self, variant: Variant, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """What blocks that share K hand on: whose turn it is at each tile, int32 [m, n, 1], and
        sums [m n of a tile, m, n, 1] in fp32. Kept, as who ends a tile puts its turn back to 0.
        """
        tile = variant.tile
        down, across = triton.cdiv(len(x), tile.m * CLUSTER) * CLUSTER, len(weight) // tile.n
        if (key := (variant, down, across)) not in self._shared:
            turns = x.new_zeros(1, down, across, dtype=torch.int32)
            sums = x.new_empty(1, down, across, tile.m * tile.n, dtype=torch.float32)
            self._shared[key] = turns.permute(1, 2, 0), sums.permute(3, 1, 2, 0)
        return self._shared[key]


def _sums(residual: Tensor, variant: Variant) -> Tensor:
    num_rows, columns = residual.shape
    return residual.new_empty(num_rows, columns // variant.tile.n, dtype=torch.float32)
