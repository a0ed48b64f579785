"""What benches on one card share: options of those that need kernels from a folder, graphs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from hotbed.bench import rows
from hotbed.rose.kernels import files

DEVICE = torch.device("cuda", 0)
Call = Callable[[], object]


def options_of(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, dict[str, str]]:
    """The bench's own options with ``kernel_dir``, ``out`` and ``commit``, and what all rows say.

    Seeds torch. Ends the program with code 2 and the reason where the kernels do not run.
    """
    parser.add_argument("--kernel-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="for the rows, where the tree is no git checkout")
    options = parser.parse_args()
    if (reason := files.missing(options.kernel_dir, DEVICE)) is not None:
        print(reason, file=sys.stderr)
        sys.exit(2)
    torch.manual_seed(0)
    device = torch.cuda.get_device_name()
    return options, {"device": device, "commit": options.commit or rows.commit()}


def graph_of(call: Call, calls: int = 1) -> torch.cuda.CUDAGraph:
    """So many calls as one CUDA graph; one is made before, for what a first call sets up."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return graph
