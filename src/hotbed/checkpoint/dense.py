"""Dense modules of sentence-transformers: linear layers behind the pooling or on every token, a
folder each.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hotbed.checkpoint.folder import ModelFolder, read_json_object, unsupported
from hotbed.checkpoint.modules import Module
from hotbed.checkpoint.records import DENSE_ACTIVATIONS, DenseModule
from hotbed.checkpoint.safetensors_index import read_tensors
from hotbed.core.errors import invalid

_WEIGHT, _BIAS = "linear.weight", "linear.bias"
_RESIDUAL = "residual.weight"
Place = Literal["sentence_embedding", "token_embeddings"]
"""What a module reads and writes: the pooled row, or every token's state."""


class _Config(msgspec.Struct):
    in_features: int
    out_features: int
    bias: bool = True
    activation_function: str = "torch.nn.modules.activation.Tanh"
    use_residual: bool = False


def read_dense(
    folder: ModelFolder,
    modules: tuple[Module, ...] | None,
    *,
    width: int,
    weights: bool,
    place: Place = "sentence_embedding",
) -> tuple[DenseModule, ...]:
    """The Dense modules in order, each as wide as the one before it left the row.

    Args:
        folder: of the model.
        modules: its chain.
        width: of the pooled row, or of a token's state.
        weights: False leaves `tensors` empty.
        place: what the modules must read; what a file leaves unsaid is taken as this.

    Raises:
        HotbedError: INVALID_INPUT naming the module's file and the field or tensor.
    """
    found = []
    for module in modules or ():
        if module.kind == "Dense":
            found.append(_read(folder.sub(module.path), width, place, weights=weights))
            width = found[-1].out_features
    return tuple(found)


def _read(folder: ModelFolder, width: int, place: Place, *, weights: bool) -> DenseModule:
    path = folder.file("config.json")
    raw: dict[str, Any] = read_json_object(path)
    for field in ("module_input_name", "module_output_name"):
        if raw.get(field) not in (None, place):
            raise unsupported(path, field, raw[field], (place,))
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
        residual=config.use_residual,
    )
    if weights:
        wanted: dict[str, tuple[int, ...]] = {_WEIGHT: (dense.out_features, dense.in_features)}
        if config.bias:
            wanted[_BIAS] = (dense.out_features,)
        if dense.residual and dense.in_features != dense.out_features:
            wanted[_RESIDUAL] = (dense.out_features, dense.in_features)
        held = {name: info.shape for name, info in dense.tensors.items()}
        if held != wanted:
            raise invalid(
                f"{folder.path}: the weights hold {held}, config.json asks for {wanted}",
                param="tensors",
            )
    return dense
