"""Which tensors a folder's safetensors files hold: names, types, shapes, read from headers only.

Hotbed loads no pickles: a folder that has only those is refused with the way to convert it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from hotbed.checkpoint.folder import ModelFolder, listed, read_json_object
from hotbed.checkpoint.records import TensorInfo
from hotbed.core.errors import HotbedError, invalid

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_CONVERT = "python -m hotbed.rose.convert_weights"
_OTHER_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.gguf", "*.onnx", "*.safetensors")


def weight_files(folder: ModelFolder) -> list[str]:
    """Names of the files that hold the model's tensors, whether they are there or not.

    The index's files if there is an index (what lies beside them is ignored), else the single
    file's name.
    """
    if folder.has(INDEX_FILE):
        return sorted(set(_weight_map(folder).values()))
    return [SINGLE_FILE]


def read_tensors(folder: ModelFolder) -> dict[str, TensorInfo]:
    """Every tensor of the model by its stored name. Only headers are read.

    With an index, exactly the tensors that it names.

    Raises:
        HotbedError: INVALID_INPUT naming the missing or broken file, or the tensors that the index
            promises and their files lack.
    """
    if not folder.has(INDEX_FILE):
        if not folder.has(SINGLE_FILE):
            raise _no_safetensors(folder)
        return read_header(folder.path / SINGLE_FILE)
    weight_map = _weight_map(folder)
    shards = {name: _read_shard(folder, name) for name in weight_files(folder)}
    absent = [name for name, file in weight_map.items() if name not in shards[file]]
    if absent:
        raise invalid(
            f"{folder.path / weight_map[absent[0]]}: {INDEX_FILE} names tensors that are not in"
            f" their files: {listed(absent)}",
            param="weight_map",
        )
    return {name: shards[file][name] for name, file in weight_map.items()}


def read_header(file: Path) -> dict[str, TensorInfo]:
    """Tensors of one safetensors file; checks that the file is as long as its header says.

    Raises:
        HotbedError: INVALID_INPUT if the file is no safetensors file or is cut short.
    """
    try:
        with safe_open(file, framework="numpy") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            return {
                name: TensorInfo(file=file, dtype=part.get_dtype(), shape=tuple(part.get_shape()))
                for name, part in slices.items()
            }
    except (SafetensorError, OSError) as error:
        raise invalid(
            f"{file}: not a complete safetensors file ({error}); fetch it again", param=file.name
        ) from error


def _read_shard(folder: ModelFolder, name: str) -> dict[str, TensorInfo]:
    if not folder.has(name):
        single = f"; {SINGLE_FILE} is there: remove the index if it is the whole model"
        beside = single if folder.has(SINGLE_FILE) else ""
        raise folder.missing(name, f"{INDEX_FILE} names it{beside}")
    return read_header(folder.path / name)


def _weight_map(folder: ModelFolder) -> dict[str, str]:
    """Tensor name to file name, from the index."""
    path = folder.path / INDEX_FILE
    weight_map: Any = read_json_object(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise invalid(f"{path}: weight_map must be an object with entries", param="weight_map")
    for name, file in weight_map.items():
        if not isinstance(file, str) or Path(file).name != file or not _is_safetensors(file):
            raise invalid(
                f"{path}: weight_map sends tensor {name!r} to {file!r}; supported: a safetensors"
                " file in the same folder",
                param="weight_map",
            )
    return weight_map


def _is_safetensors(file: str) -> bool:
    return file.endswith(".safetensors")


def _no_safetensors(folder: ModelFolder) -> HotbedError:
    others = sorted(p.name for pattern in _OTHER_WEIGHTS for p in folder.path.glob(pattern))
    if folder.source == "hub":  # other formats are not fetched
        return folder.missing(
            SINGLE_FILE,
            "Hotbed loads safetensors only. If the repository has pickles instead"
            " (pytorch_model.bin), and you trust them: hf download"
            f" {folder.name} --local-dir FOLDER; {_CONVERT} FOLDER; and serve that folder",
        )
    if not others:
        return folder.missing(SINGLE_FILE, "Hotbed loads safetensors only")
    why = f"there is {', '.join(others[:5])}, but Hotbed loads safetensors only"
    if any(name.endswith(_PICKLES) for name in others):
        why += (
            " (pickles can run code). Where you trust the files, a loader that runs none converts"
            f" them: {_CONVERT} FOLDER"
        )
    return folder.missing(SINGLE_FILE, why)
