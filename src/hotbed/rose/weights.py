"""From the tensors in a model's files to the tensors its layers take: names, fusing, dtype.

A model says, for each of its parameters, which stored tensors it is made of (concatenated along
the first dimension) and the shape of the result. Everything stored must be used or be named as
unused; everything asked for must be there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import torch
from safetensors import safe_open
from torch import Tensor

from hotbed.checkpoint.records import Checkpoint, TensorInfo
from hotbed.core.errors import invalid

# Names that old conversions from TensorFlow left in BERT files.
_OLD_NAMES = ((".LayerNorm.gamma", ".LayerNorm.weight"), (".LayerNorm.beta", ".LayerNorm.bias"))
_FLOAT_DTYPES = ("F64", "F32", "F16", "BF16")
_MAX_NAMES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Parameter:
    """One tensor a model needs.

    Attributes:
        sources: the stored tensors it is stacked from.
        shape: of the result.
        rows: the only rows to read of each source, in this order; None: all.
    """

    sources: tuple[str, ...]
    shape: tuple[int, ...]
    rows: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class WeightMap:
    """All parameters of a model by name, and patterns of stored names it has no use for."""

    parameters: Mapping[str, Parameter]
    unused: tuple[str, ...] = ()


def linear(
    name: str, sources: tuple[str, ...], shape: tuple[int, int], *, bias: bool
) -> dict[str, Parameter]:
    """Parameters ``name.weight`` [out, in] and, with `bias`, ``name.bias`` [out]."""
    made = {f"{name}.weight": Parameter(tuple(f"{s}.weight" for s in sources), shape)}
    if bias:
        made[f"{name}.bias"] = Parameter(tuple(f"{s}.bias" for s in sources), shape[:1])
    return made


def layer_norm(name: str, source: str, width: int) -> dict[str, Parameter]:
    """Parameters ``name.weight`` and ``name.bias``, each [width]."""
    return {f"{name}.{p}": Parameter((f"{source}.{p}",), (width,)) for p in ("weight", "bias")}


def load_weights(
    checkpoint: Checkpoint,
    weight_map: WeightMap,
    *,
    dtype: torch.dtype,
    device: torch.device,
    used_elsewhere: Collection[str] = (),
) -> dict[str, Tensor]:
    """Read, fuse, convert and place all parameters of a model.

    Args:
        checkpoint: with its tensors.
        weight_map: of the model.
        dtype: of the result.
        device: of the result.
        used_elsewhere: stored tensors that others read, such as the head's.

    Returns:
        parameter name to tensor of `dtype` on `device`, each of the shape its map says.

    Raises:
        HotbedError: INVALID_INPUT naming missing and surplus tensors, or one of a wrong shape or
            type.
    """
    stored = {_current_name(name) for name in checkpoint.tensors}
    _check_names(stored, weight_map, used_elsewhere)
    return load_parameters(checkpoint, weight_map.parameters, dtype=dtype, device=device)


def load_parameters(
    checkpoint: Checkpoint,
    parameters: Mapping[str, Parameter],
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> dict[str, Tensor]:
    """The same for these parameters alone, whatever else is stored."""
    stored = {_current_name(name): name for name in checkpoint.tensors}
    _check_names(stored, WeightMap(parameters, (".*",)))
    tensors: dict[str, Tensor] = {}
    with _Files() as files:
        for name, parameter in parameters.items():
            parts = []
            for source in parameter.sources:
                key = stored[source]
                info = checkpoint.tensors[key]
                _check_dtype(source, info)
                _check_rows(source, info, parameter.rows)
                part = files.read(info, checkpoint.stored_names[key], parameter.rows)
                parts.append(part.to(dtype))
            tensor = parts[0] if len(parts) == 1 else torch.cat(parts)
            if tuple(tensor.shape) != parameter.shape:
                raise invalid(
                    f"{' + '.join(parameter.sources)} has shape {list(tensor.shape)}, "
                    f"config.json asks for {list(parameter.shape)}"
                )
            # clone: the file's mapping must not outlive the load.
            placed = tensor.to(device)
            tensors[name] = placed.clone() if placed.data_ptr() == parts[0].data_ptr() else placed
    return tensors


def load_fp32(tensors: Mapping[str, TensorInfo], *, device: torch.device) -> dict[str, Tensor]:
    """Tensors by name, in fp32 on `device`, as they are stored otherwise.

    Raises:
        HotbedError: INVALID_INPUT naming a tensor of a type that is not supported.
    """
    loaded = {}
    with _Files() as files:
        for name, info in tensors.items():
            _check_dtype(name, info)
            # copy: the file's mapping must not outlive the load.
            loaded[name] = files.read(info, name).to(device, torch.float32, copy=True)
    return loaded


class _Files:
    """Keeps each safetensors file open once while its tensors are read."""

    def __init__(self) -> None:
        self._open: dict[str, safe_open] = {}

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._open.clear()

    def read(
        self, info: TensorInfo, stored_name: str, rows: tuple[int, ...] | None = None
    ) -> Tensor:
        path = str(info.file)
        if path not in self._open:
            self._open[path] = safe_open(path, framework="pt", device="cpu")
        if rows is not None:
            stored = self._open[path].get_slice(stored_name)
            return torch.cat([stored[row : row + 1] for row in rows])
        tensor: Tensor = self._open[path].get_tensor(stored_name)
        return tensor


def _current_name(name: str) -> str:
    for old, new in _OLD_NAMES:
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _check_names(
    stored: Collection[str], weight_map: WeightMap, used_elsewhere: Collection[str] = ()
) -> None:
    needed = {s for p in weight_map.parameters.values() for s in p.sources}
    missing = sorted(needed - set(stored))
    unused = [re.compile(pattern) for pattern in weight_map.unused]
    rest = set(stored) - needed - set(used_elsewhere)
    surplus = sorted(n for n in rest if not any(u.fullmatch(n) for u in unused))
    problems = [
        f"{len(names)} {kind}: {_shown(names)}"
        for kind, names in (("missing", missing), ("not known to the model", surplus))
        if names
    ]
    if problems:
        raise invalid(f"the weight files do not fit config.json; tensors {'; '.join(problems)}")


def _shown(names: Iterable[str]) -> str:
    names = list(names)
    rest = len(names) - _MAX_NAMES_SHOWN
    return ", ".join(names[:_MAX_NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _check_rows(name: str, info: TensorInfo, rows: tuple[int, ...] | None) -> None:
    if rows is not None and max(rows) >= info.shape[0]:
        raise invalid(f"tensor {name} has {info.shape[0]} rows, row {max(rows)} is needed")


def _check_dtype(name: str, info: TensorInfo) -> None:
    if info.dtype not in _FLOAT_DTYPES:
        raise invalid(
            f"tensor {name} is stored as {info.dtype}; supported are {', '.join(_FLOAT_DTYPES)}"
        )
