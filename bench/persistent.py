"""What one persistent kernel for a whole model would be made of: `python -m bench.persistent`.

Such a kernel has no launches; between two layers of it lies a barrier of all blocks instead, and
what one block wrote the others read from the L2 cache. Timed here: the barrier of the grid alone;
with an activation of T tokens written in shares and read by every block; with partial sums added up
in the L2 cache by all blocks; the barrier of a cluster; with an exchange through distributed shared
memory. One block a multiprocessor. A barrier that not all blocks reach is given up and said so.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from pathlib import Path
from typing import Any

import torch

from hotbed.bench import rows
from hotbed.rose.kernels.hopper.nvrtc import compile_function, define

DEVICE = torch.device("cuda", 0)
_SOURCE = Path(__file__).with_suffix(".cu")
_ROUNDS, _THREADS = 400, 256
_SHARED_BYTES = 160 * 1024  # so that no two blocks share a multiprocessor
_GRID, _READ, _ADD, _CLUSTER, _EXCHANGE = range(5)


def cases() -> dict[str, tuple[int, int, int, int]]:
    """Name to (kind, blocks, blocks a cluster, bytes)."""
    found = {
        "grid barrier, 132 blocks": (_GRID, 132, 1, 0),
        "grid barrier, 128 blocks in clusters of 4": (_GRID, 128, 4, 0),
        "grid barrier, 128 blocks in clusters of 8": (_GRID, 128, 8, 0),
    }
    for tokens in (16, 32, 64, 128):
        size = 2 * 1024 * tokens
        found[f"{tokens} x 1,024 BF16 written in shares, read by all"] = (_READ, 128, 1, size)
        found[f"{tokens} x 128 fp32 added by each of 128 blocks"] = (_ADD, 128, 1, 512 * tokens)
    for cluster in (2, 4, 8):
        found[f"cluster barrier of {cluster}"] = (_CLUSTER, 128, cluster, 0)
        for size in (1024, 4096):
            name = f"{size} bytes to each of {cluster} blocks of a cluster"
            found[name] = (_EXCHANGE, 128, cluster, size)
    return found


def time_us(kind: int, blocks: int, cluster: int, num_bytes: int) -> float | None:
    """us a round; None if the blocks never met."""
    prologue = define(KIND=kind, CLUSTER=cluster)
    function = compile_function(_SOURCE, prologue, "parts", DEVICE, _SHARED_BYTES)
    buffer = torch.zeros(max(16 * num_bytes, 1 << 20), dtype=torch.uint8, device=DEVICE)
    sink = torch.zeros(4, device=DEVICE)
    failed = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    times = []
    for rounds in (_ROUNDS, _ROUNDS, 2 * _ROUNDS, 2 * _ROUNDS):
        counter = torch.zeros(1, dtype=torch.int32, device=DEVICE)
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        function.launch(
            [
                *(ctypes.c_uint64(t.data_ptr()) for t in (counter, buffer, sink, failed)),
                ctypes.c_int32(num_bytes),
                ctypes.c_int32(rounds),
            ],
            grid=(blocks, 1),
            threads=_THREADS,
            shared_bytes=_SHARED_BYTES,
            cluster=(cluster, 1),
            pdl=False,
        )
        stop.record()
        stop.synchronize()
        if failed.item():
            return None
        times.append(start.elapsed_time(stop) * 1e3)
    return (times[3] - times[1]) / _ROUNDS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    options = parser.parse_args()
    measured: list[dict[str, Any]] = []
    for name, case in cases().items():
        us = time_us(*case)
        print(f"{name}: {'the blocks never met' if us is None else f'{us:.2f} us'}", flush=True)
        if us is not None:
            where = {"device": torch.cuda.get_device_name(), "commit": options.commit}
            measured.append(
                rows.row("persistent-parts", "hotbed", "none", settings=name, us=us, **where)
            )
    if options.out:
        rows.append(options.out, measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
