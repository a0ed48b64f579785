"""Before anything starts, in a process of its own that frees the device again: writes the models
with random weights, measures the device's ceilings, and says what each model costs.
"""

from __future__ import annotations

import dataclasses
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from hotbed.bench.cost import Ceilings, Cost
from hotbed.bench.folders import write_folder
from hotbed.bench.rows import cpu_name
from hotbed.bench.shapes import SHAPES, tiny
from hotbed.bench.texts import corpus
from hotbed.bench.worker import serve_messages
from hotbed.checkpoint.load import load_checkpoint
from hotbed.doctor.ceilings import measure_ceilings
from hotbed.doctor.machine import driver
from hotbed.rose.device import device_name, resolve_device
from hotbed.rose.registry import FAMILIES

_MAX_TOKENS = 8192
_BYTES = {"float32": 4, "bfloat16": 2}


def main(argv: list[str]) -> None:
    """`argv`: the pipe's file descriptor."""
    serve_messages(Connection(int(argv[0])), Preparer)


class Preparer:
    """Answers ``device-type``, ``model`` and ``device`` messages."""

    def handle(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer to one message."""
        device = resolve_device(message["device"])
        if message["do"] == "device-type":
            return {"type": device.type}
        if message["do"] == "device":
            return self._device(device)
        if message["do"] == "model":
            return self._model(message, device)
        raise ValueError(f"unknown message {message['do']!r}")

    def _device(self, device: torch.device) -> dict[str, Any]:
        measured = measure_ceilings(device)
        ceilings = Ceilings(
            read_bytes_per_s=measured.read_bytes_per_s,
            matmul_flops=measured.matmul_flops,
            bytes_per_element=_BYTES[measured.matmul_dtype],
        )
        return {
            "type": device.type,
            # A processor's figures mean little without the number of its cores.
            "name": device_name(device) if device.type == "cuda" else cpu_name(),
            "driver": driver() if device.type == "cuda" else None,
            "torch": str(torch.__version__),
            "dtype": measured.matmul_dtype,
            "ceilings": dataclasses.asdict(ceilings),
        }

    def _model(self, message: dict[str, Any], device: torch.device) -> dict[str, Any]:
        """A shape's folder is written; that of a real model only read."""
        name = message["model"]
        folder = name
        shape = SHAPES.get(name)
        if shape is not None:
            if message["tiny"]:
                shape = tiny(shape)
            path = Path(message["work"]) / ("tiny" if message["tiny"] else "full") / name
            given = message["tokenizer"]
            texts = message["texts"]
            write_folder(
                shape,
                path,
                device=device,
                texts=corpus(None if texts is None else Path(texts)).splitlines(),
                tokenizer=None if given is None or message["tiny"] else Path(given),
            )
            folder = str(path)
        checkpoint = load_checkpoint(folder, offline=True)
        family = FAMILIES[checkpoint.family]
        return {
            "folder": str(checkpoint.folder),
            "task": checkpoint.task,
            "max_tokens": min(checkpoint.max_tokens, _MAX_TOKENS),
            "tokenizer": str(checkpoint.tokenizer.tokenizer_json),
            "random_weights": shape is not None,
            "cost": dataclasses.asdict(
                Cost.of(family.weight_map(checkpoint.config), checkpoint.config)
            ),
        }


if __name__ == "__main__":
    main(sys.argv[1:])
