"""Where the time of small steps' kernels goes, by clocks inside them.

    python -m bench.small_steps_profile --models bge-m3 --tokens 32 --out profile.jsonl

The kernels of `small_gemm.cu` with a line more at each stage, which notes the multiprocessor's
clock and the device's; all layers as one CUDA graph. Printed for each kernel of a layer: ns from
stage to stage, the mean over its blocks, and how long after the end of the kernel in front its
first block goes on. Noting costs some 8 % itself.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.small_steps import Chain
from hotbed.bench import rows
from hotbed.bench.shapes import SHAPES
from hotbed.rose.kernels.hopper import small_gemm

DEVICE = torch.device("cuda", 0)
STAGES = ("waited", "fetched", "x there", "products", "exchanged", "gathered", "end")
_MARK = "if (threadIdx.x == 0) mark({}, k_steps);\n"
# A line of the kernel, and what is put in front of it or behind it.
ANCHORS: tuple[tuple[str, str, str], ...] = (
    ("  launch_dependents();\n\n", _MARK.format(0), ""),
    ("    fetch_written(args, fetched", _MARK.format(1), ""),
    ("    float acc[TOK / 2];\n", _MARK.format(2), ""),
    (
        "      barrier_wait(full + 8 * stage, (step / STAGES) & 1);\n",
        "",
        "if (!step) " + _MARK.format(3),
    ),
    ("    // Both warpgroups are done with the tiles", _MARK.format(4), ""),
    ("    gather(sum, base, rank, first);\n", _MARK.format(5), _MARK.format(6)),
    ("  // Peers may still be reading this block's", _MARK.format(7), ""),
)
_EPILOGUES, _MOST_STEPS, _MOST_BLOCKS, _MARKS = 6, 64, 512, 8
_NOTE = """
__device__ __forceinline__ void mark(int i, int k_steps) {
  u64 device;
  const u64 own = clock64();
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(device));
  const u64 block = blockIdx.y * gridDim.x + blockIdx.x;
  u64* to = (u64*)NOTES + (((u64)EPILOGUE * 64 + k_steps % 64) * 512 + block) * 16 + 2 * i;
  to[0] = device, to[1] = own;
}
"""


def marked(source: str) -> str:
    """The kernel's source with its marks."""
    for anchor, before, behind in (*ANCHORS, ('#include "hopper.cuh"\n', "", _NOTE)):
        if source.count(anchor) != 1:
            raise ValueError(f"small_gemm.cu has {anchor!r} {source.count(anchor)} times, not once")
        source = source.replace(anchor, before + anchor + behind)
    return source


def profile(model: str, num_tokens: int, source: Path) -> list[dict[str, Any]]:
    """One record a kernel of a layer, in their order."""
    shape = (_EPILOGUES, _MOST_STEPS, _MOST_BLOCKS, _MARKS, 2)
    notes = torch.zeros(shape, dtype=torch.int64, device=DEVICE)
    plain, prologue = small_gemm._SOURCE, small_gemm.Kernel.prologue
    small_gemm._SOURCE = source
    small_gemm.Kernel.prologue = lambda self: (
        prologue(self) + f"#define NOTES {notes.data_ptr()}ull\n"
    )
    chain = Chain(model)
    try:
        graph, _result = chain.graph(chain.batch(num_tokens))
        for _ in range(20):
            graph.replay()
        torch.cuda.synchronize()
    finally:
        small_gemm._SOURCE, small_gemm.Kernel.prologue = plain, prologue
        small_gemm.tiling_of = chain.rule
    found = []
    for epilogue, steps in (notes[:, :, :, 0, 0].amax(dim=2) > 0).nonzero().tolist():
        kernel = notes[epilogue, steps]
        found.append((epilogue, steps, kernel[kernel[:, 0, 0] > 0].cpu()))
    found.sort(key=lambda item: int(item[2][:, 1, 0].min()))
    records, end = [], None
    for epilogue, steps, blocks in found:
        records.append(_record(epilogue, steps, blocks, end))
        end = int(blocks[:, -1, 0].max())
    return records


def _record(epilogue: int, steps: int, blocks: Tensor, end: int | None) -> dict[str, Any]:
    names = {number: name for name, number in small_gemm._EPILOGUES.items()}
    device, own = blocks[..., 0].double(), blocks[..., 1].double()
    ns_a_cycle = (device[:, -1] - device[:, 0]).sum() / (own[:, -1] - own[:, 0]).sum()
    between = ((own[:, 1:] - own[:, :-1]) * ns_a_cycle).mean(0).round().int().tolist()
    return {
        "kernel": f"{names[epilogue]}, {steps} steps of K a block",
        "blocks": len(blocks),
        "behind_ns": None if end is None else int(blocks[:, 1, 0].min()) - end,
        "stages_ns": dict(zip(STAGES[1:], between[1:], strict=True)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["pplx-embed-0.6b", "bge-m3"])
    parser.add_argument("--tokens", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "small_gemm.cu"
        source.write_text(marked(small_gemm._SOURCE.read_text()))
        for model in options.models:
            most = 256 if SHAPES[model].family == "decoder" else 128
            for num_tokens in (n for n in options.tokens if n <= most):
                for record in profile(model, num_tokens, source):
                    print(model, num_tokens, record, flush=True)
                    row = rows.row(
                        "small-steps-profile",
                        "hotbed",
                        model,
                        tokens=num_tokens,
                        **record,
                        device=torch.cuda.get_device_name(),
                        commit=options.commit or rows.commit(),
                    )
                    if options.out:
                        rows.append(options.out, [row])
    return 0


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
