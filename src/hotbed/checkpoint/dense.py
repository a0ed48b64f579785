"""Dense modules of sentence-transformers: linear layers behind the pooling, a folder each."""

from __future__ import annotations

from typing import Any

import msgspec

from hotbed.checkpoint.folder import ModelFolder, read_json_object, unsupported
from hotbed.checkpoint.modules import Module
from hotbed.checkpoint.records import DENSE_ACTIVATIONS, DenseModule
from hotbed.checkpoint.safetensors_index import read_tensors
from hotbed.core.errors import invalid

_WEIGHT, _BIAS = "linear.weight", "linear.bias"
# What the module reads and writes in every model seen so far: the pooled row.
_PLACES = {
    "module_input_name": "sentence_embedding",
    "module_output_name": "sentence_embedding",
}


class _Config(msgspec.Struct):
    in_features: int
    out_features: int
    bias: bool = True
    activation_function: str = "torch.nn.modules.activation.Tanh"


def read_dense(
    folder: ModelFolder, modules: tuple[Module, ...] | None, *, width: int, weights: bool
) -> tuple[DenseModule, ...]:
    """The Dense modules in order, each as wide as the one before it left the row.

    Args:
        folder: of the model.
        modules: its chain.
        width: of the pooled row.
        weights: False leaves `tensors` empty.

    Raises:
        HotbedError: INVALID_INPUT naming the module's file and the field or tensor.
    """
    found = []
    for module in modules or ():
        if module.kind == "Dense":
            found.append(_read(folder.sub(module.path), width, weights=weights))
            width = found[-1].out_features
    return tuple(found)


def _read(folder: ModelFolder, width: int, *, weights: bool) -> DenseModule:
    path = folder.file("config.json")
    raw: dict[str, Any] = read_json_object(path)
    for field, supported in _PLACES.items():
        if raw.get(field) not in (None, supported):
            raise unsupported(path, field, raw[field], (supported,))
    try:
        config = msgspec.convert(raw, _Config)
    except msgspec.ValidationError as error:
        raise invalid(f"{path}: {error}", param="config.json") from error
    # transformers and torch moved the classes; the last part of the name is the same everywhere.
    name = config.activation_function.rsplit(".", 1)[-1]
    if name not in DENSE_ACTIVATIONS:
        raise unsupported(path, "activation_function", name, tuple(DENSE_ACTIVATIONS))
    if config.in_features != width:
        raise invalid(
            f"{path}: in_features is {config.in_features}, the row that comes in has {width}",
            param="in_features",
        )
    dense = DenseModule(
        in_features=config.in_features,
        out_features=config.out_features,
        activation=DENSE_ACTIVATIONS[name],
        tensors=read_tensors(folder) if weights else {},
    )
    if weights:
        wanted: dict[str, tuple[int, ...]] = {_WEIGHT: (dense.out_features, dense.in_features)}
        if config.bias:
            wanted[_BIAS] = (dense.out_features,)
        held = {name: info.shape for name, info in dense.tensors.items()}
        if held != wanted:
            raise invalid(
                f"{folder.path}: the weights hold {held}, config.json asks for {wanted}",
                param="tensors",
            )
    return dense
