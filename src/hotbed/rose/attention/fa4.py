"""FlashAttention 4 over offsets, from kernels built ahead of time (`fa4_kernels`), on Hopper.

One launch a layer, no plan, no workspace: the grid comes from the shapes alone, each block finds
its sequence by a prefix sum over the offsets on the device, and blocks in excess exit. So graphs
may be replayed with any lengths. Rows past the last offset would stay unwritten; on a GPU the last
slot holds the pad rows, so there are none.

H200, 2026-11-30, inside graphs: head dim 128, 16/8 heads, 666 TFLOP/s at 1 x 4096 and 413 at
50 x 512; head dim 64 483 and 281; relative error to fp32 about 2e-3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hotbed.rose.attention.backend import AttentionSpec, Capability
from hotbed.rose.attention.fa4_kernels import (
    DEFAULT_TILE,
    Fa4Kernel,
    Mask,
    Tile,
    kernels_in,
    load,
    mask_of,
    tiles_in,
)
from hotbed.rose.batch import PackedBatch
from hotbed.rose.kernels import files


@dataclass(frozen=True, slots=True)
class TileRule:
    """A tile, and the steps it is the fastest for.

    Attributes:
        tile: rows of queries and of keys a block takes.
        max_rows: up to so many query rows in all (T x N): larger tiles would leave multiprocessors
            without work.
        max_slot_rows: or up to so many in a slot on average (T x group / slots): larger tiles would
            be mostly empty. 0 for a rule that does not look at it.
    """

    tile: Tile
    max_rows: float
    max_slot_rows: int = 0


# us a call, H200, 2026-11-30 (bench/attention.py), 64 x 64 against the default tile:
#   full    hd128 16/8:  1 x 512 8.2 / 10.6, 2 x 512 15.4 / 11.0, 16 x 512 125 / 84
#           hd64 16/16:  1 x 512 6.9 / 10.5, 2 x 512 12.8 / 10.9;  hd32 12/12: 6.2 / 9.0, 11.4 / 9.1
#   causal  hd128 16/8:  2 x 512 12.3 / 11.3;  hd64 16/16: 10.5 / 11.4, 4 x 512 19.3 / 18.8
# Many short texts, 256 x 32: hd64 213 / 262. For a window of 64 128 x 64 took 40 us at 16 x 512 and
# 42 at 1 x 8192.
TILES: dict[Mask, tuple[TileRule, ...]] = {
    "full": (TileRule((64, 64), 8_192, max_slot_rows=64), TileRule(DEFAULT_TILE, torch.inf)),
    "causal": (TileRule((64, 64), 16_384, max_slot_rows=64), TileRule(DEFAULT_TILE, torch.inf)),
    "win": (TileRule((64, 64), 8_192, max_slot_rows=64), TileRule((128, 64), torch.inf)),
}

ONE_TILE: dict[Mask, tuple[TileRule, ...]] = {
    mask: (TileRule((128, 64) if mask == "win" else DEFAULT_TILE, torch.inf),) for mask in TILES
}
"""For steps of all shapes the same, so that a sequence's sums are always cut the same way: tiles
begin at its own start, and a block takes all of its keys, in order."""


@dataclass(frozen=True, slots=True)
class Fa4Plan:
    """The kernel for the step's shape, and the arguments that are the same in every layer."""

    kernel: Callable[..., None]
    cu_seqlens: Tensor
    scale: float
    window: tuple[int | None, int | None]


class Fa4Backend:
    """FlashAttention 4 in bfloat16.

    Args:
        kernel_dir: folder of kernels; None means that there are none.
        tiles: which tile when.
    """

    name = "fa4"
    supports_capture = True
    grid_follows_max_seqlen = False
    tells_shapes_apart = False
    isolates_nan = False

    def __init__(
        self, kernel_dir: Path | None, *, tiles: dict[Mask, tuple[TileRule, ...]] = TILES
    ) -> None:
        self._kernel_dir = kernel_dir
        self._tiles = tiles
        self._kernels: dict[AttentionSpec, dict[Tile, Callable[..., None]]] = {}

    def supports(self, spec: AttentionSpec, device: torch.device, dtype: torch.dtype) -> str | None:
        """See `AttentionBackend.supports`."""
        if device.type != "cuda":
            return f"it runs on CUDA, not on {device.type}"
        if dtype != torch.bfloat16:
            return f"its kernels compute bfloat16, not {str(dtype).removeprefix('torch.')}"
        if (reason := files.missing(self._kernel_dir, device)) is not None:
            return reason
        assert self._kernel_dir is not None, "without one it is missing: a bug"
        if not tiles_in(self._kernel_dir, spec):
            kernel = Fa4Kernel(spec.head_dim, spec.group, mask_of(spec))
            return (
                f"{self._kernel_dir} has no kernel for head dim {spec.head_dim}, group "
                f"{spec.group}, mask {kernel.mask} ({kernel.file_name})"
            )
        return None

    def describe(self) -> Capability:
        """See `AttentionBackend.describe`."""
        found = kernels_in(self._kernel_dir) if self._kernel_dir is not None else []
        return Capability(
            name=self.name,
            devices="cuda, compute capability 9.0",
            dtypes="bfloat16",
            head_dims="of the kernels found: " + (_listing(found) or "none"),
            masks="full, causal, window",
            supports_capture=self.supports_capture,
            isolates_nan=self.isolates_nan,
            missing=files.missing(self._kernel_dir, torch.device("cuda")),
        )

    def prepare(self, spec: AttentionSpec, device: torch.device) -> None:
        """See `AttentionBackend.prepare`.

        The first call of a kernel moves its code to the device, which may not happen under capture,
        so each is called here, on one row.
        """
        assert self._kernel_dir is not None, "`supports` has refused this: a bug"
        mask = mask_of(spec)
        kernels = {
            tile: load(self._kernel_dir, Fa4Kernel(spec.head_dim, spec.group, mask, tile))
            for tile in tiles_in(self._kernel_dir, spec)
        }
        with torch.device(device), torch.cuda.device(device if device.type == "cuda" else -1):
            q = torch.zeros(1, spec.num_heads, spec.head_dim, dtype=torch.bfloat16)
            k = torch.zeros(1, spec.num_kv_heads, spec.head_dim, dtype=torch.bfloat16)
            offsets = torch.tensor([0, 1], dtype=torch.int32)
            for kernel in kernels.values():
                self.run(q, k, k, _plan(kernel, offsets, spec))
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        self._kernels[spec] = kernels

    def plan(self, batch: PackedBatch, spec: AttentionSpec) -> Fa4Plan:
        """See `AttentionBackend.plan`; `prepare` has been called for `spec`."""
        num_tokens, num_slots = len(batch.token_ids), len(batch.cu_seqlens) - 1
        rows, slot_rows = num_tokens * spec.num_heads, num_tokens * spec.group / num_slots
        kernels = self._kernels[spec]
        fastest = (
            rule.tile
            for rule in self._tiles[mask_of(spec)]
            if rows <= rule.max_rows or slot_rows <= rule.max_slot_rows
        )
        # Of a tile that the folder lacks the next best is taken: they differ in speed only.
        tile = next((tile for tile in fastest if tile in kernels), next(iter(kernels)))
        return _plan(kernels[tile], batch.cu_seqlens, spec)

    def run(self, q_TNH: Tensor, k_TKH: Tensor, v_TKH: Tensor, plan: Fa4Plan) -> Tensor:
        """See `AttentionBackend.run`."""
        out = torch.empty_like(q_TNH, memory_format=torch.contiguous_format)
        # q, k, v, out, log-sum-exp, scale, offsets of q and of k, lengths in use of q and of k,
        # page table, window to the left and right, sink, block sparsity, (tensors and scalars of a
        # mask function), two running sums of blocks. On torch's current stream.
        plan.kernel(
            *(q_TNH, k_TKH, v_TKH, out, None, plan.scale, plan.cu_seqlens, plan.cu_seqlens),
            *(None, None, None, *plan.window, None, None, (None, None), None, None),
        )
        return out


def _plan(kernel: Callable[..., None], cu_seqlens: Tensor, spec: AttentionSpec) -> Fa4Plan:
    window = (None, None) if spec.window is None else spec.reach
    return Fa4Plan(kernel, cu_seqlens, spec.scale, window)


def _listing(kernels: Sequence[Fa4Kernel]) -> str:
    names = dict.fromkeys(f"hd{k.head_dim} g{k.group} {k.mask}" for k in kernels)
    return ", ".join(names)
