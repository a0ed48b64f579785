"""Writes weights that are published as pickles as safetensors, which Hotbed loads.

``python -m hotbed.rose.convert_weights FOLDER``: pytorch_model.bin, one file or shards, of the
transformer and of Dense modules, and bge-m3's two heads. They are read with torch's loader for
weights alone, which runs no code of the file, and only when a person asks for it.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from hotbed.checkpoint.folder import ModelFolder, read_json_object
from hotbed.checkpoint.modules import weight_paths
from hotbed.checkpoint.safetensors_index import INDEX_FILE, SINGLE_FILE
from hotbed.core.errors import HotbedError

HEADS = ("colbert_linear", "sparse_linear")
_BIN, _BIN_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


def convert(folder: Path) -> list[Path]:
    """Convert what is there and has not been converted; the files that were written.

    Raises:
        ValueError: a file holds anything but tensors by name, a head's other ones than a weight and
            a bias.
        HotbedError: modules.json cannot be read.
    """
    model = ModelFolder(name=str(folder), source="folder", path=folder)
    written = [file for path in weight_paths(model) for file in _convert_module(folder / path)]
    for name in HEADS:
        source, target = folder / f"{name}.pt", folder / f"{name}.safetensors"
        if source.is_file() and not target.exists():
            tensors = _read(source)
            if sorted(tensors) != ["bias", "weight"]:
                held = sorted(tensors)
                raise ValueError(
                    f"{source} holds {held}, not the weight and bias of a linear layer"
                )
            written.append(_write(tensors, target))
    return written


def _convert_module(folder: Path) -> list[Path]:
    if (folder / SINGLE_FILE).exists() or (folder / INDEX_FILE).exists():
        return []
    if (folder / _BIN).is_file():
        return [_write(_read(folder / _BIN), folder / SINGLE_FILE)]
    if not (folder / _BIN_INDEX).is_file():
        return []
    index = read_json_object(folder / _BIN_INDEX)
    weight_map: dict[str, str] = {}
    written = []
    for shard in sorted(set(index["weight_map"].values())):
        if Path(shard).name != shard:
            raise ValueError(f"{folder / _BIN_INDEX} names a file outside its folder: {shard!r}")
        tensors = _read(folder / shard)
        target = folder / (shard.removesuffix(".bin").replace("pytorch_", "") + ".safetensors")
        written.append(_write(tensors, target))
        weight_map |= dict.fromkeys(tensors, target.name)
    path = folder / INDEX_FILE
    path.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}), encoding="utf-8")
    return [*written, path]


def _read(source: Path) -> dict[str, Tensor]:
    try:
        held = torch.load(source, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(f"{source} holds more than weights and is not read: {error}") from error
    is_state = isinstance(held, dict) and all(isinstance(t, Tensor) for t in held.values())
    if not is_state:
        raise ValueError(f"{source} holds a {type(held).__name__}, not tensors by name alone")
    return dict(held)


def _write(tensors: dict[str, Tensor], target: Path) -> Path:
    # clone: tied tensors are stored twice; the format knows no sharing.
    copies = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    save_file(copies, target, metadata={"format": "pt"})
    return target


def main(argv: Sequence[str] | None = None) -> int:
    """Convert the weights of one folder and name the files."""
    prog = "python -m hotbed.rose.convert_weights"
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    parser.add_argument("folder", type=Path, help="of the model, e.g. a download of BAAI/bge-m3")
    folder = parser.parse_args(argv).folder
    try:
        written = convert(folder)
    except (HotbedError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    for path in written:
        print(path)
    if not written:
        print(f"{folder}: no {_BIN} or {' or '.join(f'{name}.pt' for name in HEADS)} to convert")
    return 0


if __name__ == "__main__":
    sys.exit(main())
