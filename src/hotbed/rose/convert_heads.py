"""Writes the two small heads that bge-m3 keeps as .pt files as safetensors, which Hotbed loads.

``python -m hotbed.rose.convert_heads FOLDER``. A .pt file is a pickle; it is read with torch's
loader for weights alone, which runs no code of the file, and only when a person asks for it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

NAMES = ("colbert_linear", "sparse_linear")


def convert(folder: Path) -> list[Path]:
    """Convert what is there and has not been converted; the files that were written.

    Raises:
        ValueError: a file holds anything but a weight and a bias.
    """
    written = []
    for name in NAMES:
        source, target = folder / f"{name}.pt", folder / f"{name}.safetensors"
        if not source.is_file() or target.exists():
            continue
        tensors = torch.load(source, map_location="cpu", weights_only=True)
        names = sorted(tensors) if isinstance(tensors, dict) else None
        if names != ["bias", "weight"] or not all(isinstance(t, Tensor) for t in tensors.values()):
            held = names or type(tensors).__name__
            raise ValueError(f"{source} holds {held}, not the weight and bias of a linear layer")
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, target)
        written.append(target)
    return written


def main(argv: Sequence[str] | None = None) -> int:
    """Convert the heads of one folder and name the files."""
    prog = "python -m hotbed.rose.convert_heads"
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    parser.add_argument("folder", type=Path, help="of the model, e.g. a download of BAAI/bge-m3")
    folder = parser.parse_args(argv).folder
    written = convert(folder)
    for path in written:
        print(path)
    if not written:
        print(f"{folder}: no {' or '.join(f'{name}.pt' for name in NAMES)} to convert")
    return 0


if __name__ == "__main__":
    sys.exit(main())
