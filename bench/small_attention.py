"""Attention of small steps in CUDA C++ beside Triton's: `python -m bench.small_attention`.

Right first: ragged batches of all kinds against fp32. Then whole models of `bench.shapes` with
random weights, as graphs of the path of small steps with either kernel, replayed in turn.

    python -m bench.small_attention --out small-attention.jsonl
"""

from __future__ import annotations

import argparse
import ctypes
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.attention import medians_us
from bench.gemm import share_of_rounding
from bench.whole_steps import DEVICE, graph_of, offsets_of, step_of
from hotbed.bench import rows
from hotbed.bench.shapes import SHAPES, random_weights
from hotbed.rose.attention.backend import AttentionSpec
from hotbed.rose.attention.select import select_backend
from hotbed.rose.batch import PackedBatch
from hotbed.rose.kernels.hopper.nvrtc import compile_function, define, tile_map
from hotbed.rose.kernels.hopper.small_gemm import MAX_TOKENS
from hotbed.rose.kernels.hopper.wgmma import product
from hotbed.rose.kernels.short_attention import reference, short_attention
from hotbed.rose.layers import small_encoder
from hotbed.rose.registry import FAMILIES

SOURCE = Path(__file__).with_suffix(".cu")
QUERIES, BOX_ROWS, MOST_KEYS = 64, 32, 128
STEPS = ((1, 32), (1, 64), (1, 128), (2, 64), (4, 32), (1, 256), (2, 128), (8, 32))
# Lengths of a step's sequences: tiles that end early, sequences that begin anywhere, many.
RAGGED = ([1], [31], [32, 1], [128], [127, 1], [129], [200, 56], [5] * 6, [64, 64], [1, 254, 1])
RAGGED_LONG = ([512], [300, 100, 112], [513], [1, 640, 7])
LOG2_E = math.log2(math.e)


class Args(ctypes.Structure):
    """As `small_attention.cu` has it."""

    _fields_ = (
        ("out", ctypes.c_uint64),
        ("offsets", ctypes.c_uint64),
        ("num_slots", ctypes.c_int32),
        ("num_heads", ctypes.c_int32),
        ("num_kv_heads", ctypes.c_int32),
        ("scale", ctypes.c_float),
    )


@dataclass(frozen=True)
class Kernel:
    """What is compiled in.

    Attributes:
        head_dim: 64 or 128.
        keys: of a tile.
        stages: tiles on their way.
        causal: whether a token sees nothing to its right.
    """

    head_dim: int
    keys: int
    stages: int
    causal: bool

    @staticmethod
    def of(head_dim: int, num_tokens: int, *, causal: bool) -> Kernel:
        """For steps of so many tokens."""
        keys = min(MOST_KEYS, -(-num_tokens // BOX_ROWS) * BOX_ROWS)
        return Kernel(head_dim, keys, 1 if num_tokens <= keys else 2, causal)

    def prologue(self) -> str:
        """What stands before the source."""
        constants = define(
            HEAD_DIM=self.head_dim, KEYS=self.keys, STAGES=self.stages, CAUSAL=int(self.causal)
        )
        values = product(
            "multiply_values", self.head_dim, left_in_registers=True, right_by_depth=True
        )
        return constants + product("multiply_scores", self.keys) + values

    @property
    def shared_bytes(self) -> int:
        """Room for a multiple of 1,024, queries, keys and values, barriers."""
        rows_of_tiles = QUERIES + 2 * self.stages * self.keys
        return 1024 + 2 * self.head_dim * rows_of_tiles + 16 * self.stages


def grid_of(num_tokens: int, num_slots: int, num_heads: int) -> tuple[int, int]:
    """Blocks: no step of so many tokens and sequences has more tiles."""
    return min(num_tokens, num_tokens // QUERIES + num_slots), num_heads


def small_attention(
    qkv: Tensor,
    cu_seqlens: Tensor,
    *,
    num_heads: int,
    num_kv_heads: int,
    scale: float,
    causal: bool = False,
) -> Tensor:
    """As `short_attention`, for heads of 64 or 128."""
    num_tokens, width = qkv.shape
    head_dim = width // (num_heads + 2 * num_kv_heads)
    out = torch.empty(num_tokens, num_heads * head_dim, dtype=qkv.dtype, device=qkv.device)
    num_slots = len(cu_seqlens) - 1
    kernel = Kernel.of(head_dim, num_tokens, causal=causal)
    args = Args(
        out=out.data_ptr(),
        offsets=cu_seqlens.data_ptr(),
        num_slots=num_slots,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        scale=scale * LOG2_E,
    )
    function = compile_function(
        SOURCE, kernel.prologue(), "small_attention", qkv.device, kernel.shared_bytes
    )
    function.launch(
        (tile_map(qkv, rows=BOX_ROWS), args),
        grid=grid_of(num_tokens, num_slots, num_heads),
        threads=128,
        shared_bytes=kernel.shared_bytes,
    )
    return out


class SmallAttention:
    """The kernel as an attention backend, for layers whose heads lie in one projection."""

    def plan(self, batch: PackedBatch, spec: AttentionSpec) -> tuple[Tensor, AttentionSpec]:
        """A step's offsets."""
        return batch.cu_seqlens, spec

    def run(self, q: Tensor, k: Tensor, v: Tensor, plan: tuple[Tensor, AttentionSpec]) -> Tensor:
        """[T, N, H], from parts of a projection [T, (N + 2 K) H]."""
        offsets, spec = plan
        width = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
        assert q.stride(0) == width, "q, k and v are no parts of a projection"
        attended = small_attention(
            q.as_strided((len(q), width), (width, 1)),
            offsets,
            num_heads=spec.num_heads,
            num_kv_heads=spec.num_kv_heads,
            scale=spec.scale,
            causal=spec.causal,
        )
        return attended.view(q.shape)


def worst_error() -> float:
    """`share_of_rounding` over ragged steps."""
    worst = 0.0
    for head_dim, heads, kv in ((128, 16, 8), (64, 16, 16)):
        for lengths in (*RAGGED, *RAGGED_LONG):
            for causal in (False, True):
                width = (heads + 2 * kv) * head_dim
                qkv = torch.randn(sum(lengths), width, device=DEVICE).bfloat16()
                offsets = offsets_of(lengths, DEVICE)
                shape: dict[str, Any] = {
                    "num_heads": heads,
                    "num_kv_heads": kv,
                    "scale": head_dim**-0.5,
                    "causal": causal,
                }
                got = small_attention(qkv, offsets, **shape)
                error = share_of_rounding(got, reference(qkv, offsets, **shape), 4e-3)
                print(f"  {head_dim} {lengths} causal {causal}: {error:.2f}", flush=True)
                worst = max(worst, error)
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["pplx-embed-0.6b", "bge-m3"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--reps", type=int, default=40)
    parser.add_argument("--commit", help="for the rows, where the tree is no git checkout")
    options = parser.parse_args()
    torch.manual_seed(0)
    if (worst := worst_error()) > 1:
        print(f"wrong: {worst:.2f} of what rounding explains", file=sys.stderr)
        return 1
    where = {"device": torch.cuda.get_device_name(), "commit": options.commit or rows.commit()}
    small_encoder._MAX_TOKENS = MAX_TOKENS  # to see where it ends
    for name in options.models:
        shape = SHAPES[name]
        family, config = FAMILIES[shape.family], shape.config
        backend = select_backend(family.attention_specs(config)[0], DEVICE)
        model: Any = family.build(config, random_weights(shape, DEVICE), [backend])
        for count, length in STEPS:
            batch = step_of(count, length, config.vocab_size)
            graphs, states = {}, {}
            for attend in (short_attention, small_attention):
                model._small._attend = attend
                states[attend] = model.forward(batch).float()
                graphs[attend.__name__] = graph_of(model.forward, batch)
            cosine = torch.nn.functional.cosine_similarity(*states.values(), dim=-1).min()
            times = medians_us(graphs, 1, options.reps)
            print(f"{name} {count} x {length}: cosine {cosine:.5f}, us {times}", flush=True)
            for settings, us in times.items():
                row = rows.row(
                    "small-attention",
                    "hotbed",
                    model=name,
                    n=count,
                    tokens=length,
                    settings=settings,
                    device_ms=round(us / 1e3, 4),
                    cosine_min=float(cosine),
                    **where,
                )
                if options.out is not None:
                    rows.append(options.out, [row])
    return 0


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
