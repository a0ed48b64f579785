"""config.json, read into the typed record of its family.

Unknown keys are ignored; a known key with a value that would change the vectors and that Hotbed
does not support is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from hotbed.checkpoint.folder import ModelFolder, read_json_object, unsupported
from hotbed.checkpoint.records import ArchitectureConfig, BertConfig, Quantizer, Qwen3Config
from hotbed.core.errors import invalid

CONFIG_FILE = "config.json"
BERT_ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
_BERT_CLASSES = ("BertModel", "BertForMaskedLM", "BertForSequenceClassification")
_QWEN3_CLASSES = ("Qwen3Model", "Qwen3ForCausalLM", "Qwen3ForSequenceClassification")
_PPLX_CLASSES = ("PPLXQwen3Model",)
_PPLX_TYPE = "bidirectional_pplx_qwen3"
_ConfigT = TypeVar("_ConfigT", BertConfig, Qwen3Config)


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """What config.json says of the model.

    Attributes:
        name: ``architectures[0]``; the family's plain encoder class where the file names none.
        quantizer: the model's own recipe for int8 rows.
    """

    family: Literal["bert", "qwen3"]
    name: str
    config: ArchitectureConfig
    quantizer: Quantizer = "none"

    @property
    def is_causal(self) -> bool:
        return isinstance(self.config, Qwen3Config) and self.config.is_causal


class _Fields:
    """The keys of one config.json, and the checks on them."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path = path
        self.values = values

    def require(self, field: str, *supported: object) -> None:
        """Refuse any value but the supported ones; absent and null mean the first of them."""
        value = self.values.get(field)
        if value is not None and value not in supported:
            raise unsupported(self.path, field, value, supported)

    def class_name(self, supported: tuple[str, ...]) -> str:
        """``architectures[0]``, one of `supported`; the first of them if the file names none."""
        names = self.values.get("architectures") or [supported[0]]
        if not isinstance(names, list) or names[0] not in supported:
            raise unsupported(self.path, "architectures", names, supported)
        return str(names[0])

    def divisible(self, field: str, by: str) -> None:
        """Refuse a field that is not a multiple of another."""
        if self.values[field] % self.values[by]:
            raise invalid(
                f"{self.path}: {field} ({self.values[field]}) must be a multiple of {by}"
                f" ({self.values[by]})",
                param=field,
            )


def read_config(folder: ModelFolder) -> Architecture:
    """Read config.json.

    Args:
        folder: where the transformer's own files lie.

    Raises:
        HotbedError: INVALID_INPUT naming the field, its value and what is supported.
    """
    path = folder.file(CONFIG_FILE)
    fields = _Fields(path, read_json_object(path))
    model_type = fields.values.get("model_type")
    reader = _READERS.get(model_type) if isinstance(model_type, str) else None
    if reader is None:
        raise unsupported(path, "model_type", model_type, tuple(_READERS))
    fields.require("quantization_config", None)
    return reader(fields)


def _read_bert(fields: _Fields) -> Architecture:
    name = fields.class_name(_BERT_CLASSES)
    fields.require("position_embedding_type", "absolute")
    fields.require("hidden_act", *BERT_ACTIVATIONS)
    fields.require("is_decoder", False)
    fields.require("add_cross_attention", False)
    config = _convert(fields, fields.values, BertConfig)
    fields.divisible("hidden_size", "num_attention_heads")
    return Architecture(family="bert", name=name, config=config)


def _read_qwen3(fields: _Fields) -> Architecture:
    architectures = fields.values.get("architectures")
    if isinstance(architectures, list) and architectures[:1] == list(_PPLX_CLASSES):
        return _read_pplx(fields)
    name = fields.class_name(_QWEN3_CLASSES)
    fields.require("is_causal", True, False)
    fields.require("use_bidirectional_attention", False, True)
    bidirectional = (
        fields.values.get("use_bidirectional_attention") is True
        or fields.values.get("is_causal") is False
    )
    config = _qwen3_config(fields, is_causal=not bidirectional)
    return Architecture(family="qwen3", name=name, config=config)


def _read_pplx(fields: _Fields) -> Architecture:
    """Qwen3 as pplx-embed uses it: bidirectional, with its own int8 recipe."""
    name = fields.class_name(_PPLX_CLASSES)
    fields.require("use_bidirectional_attention", True)
    config = _qwen3_config(fields, is_causal=False)
    return Architecture(family="qwen3", name=name, config=config, quantizer="pplx")


def _qwen3_config(fields: _Fields, *, is_causal: bool) -> Qwen3Config:
    fields.require("hidden_act", "silu")
    fields.require("attention_bias", False)
    fields.require("use_sliding_window", False)
    for layer_type in fields.values.get("layer_types") or []:
        if layer_type != "full_attention":
            raise unsupported(fields.path, "layer_types", layer_type, ("full_attention",))
    values = fields.values | {"is_causal": is_causal, "rope_theta": _rope_theta(fields)}
    config = _convert(fields, values, Qwen3Config)
    fields.divisible("num_attention_heads", "num_key_value_heads")
    if config.head_dim % 2:
        raise invalid(
            f"{fields.path}: head_dim ({config.head_dim}) must be even: rotary embedding turns"
            " pairs",
            param="head_dim",
        )
    return config


def _rope_theta(fields: _Fields) -> object:
    """The base of the rotary frequencies: top level, or in rope_parameters (transformers 5).

    There is no default: transformers' own has changed, and a wrong base gives wrong vectors.
    """
    thetas = [fields.values["rope_theta"]] if "rope_theta" in fields.values else []
    for field in ("rope_parameters", "rope_scaling"):
        block = fields.values.get(field)
        if block is None:
            continue
        if not isinstance(block, dict):
            raise unsupported(fields.path, field, block, (None,))
        inner = _Fields(fields.path, {f"{field}.{key}": value for key, value in block.items()})
        inner.require(f"{field}.rope_type", "default")
        inner.require(f"{field}.type", "default")
        inner.require(f"{field}.partial_rotary_factor", 1.0)
        if "rope_theta" in block:
            thetas.append(block["rope_theta"])
    if not thetas:
        raise invalid(
            f"{fields.path}: rope_theta is missing, at the top level and in rope_parameters",
            param="rope_theta",
        )
    if any(theta != thetas[0] for theta in thetas):
        raise invalid(
            f"{fields.path}: rope_theta is stated twice and differs: {thetas[0]!r} and"
            f" {thetas[-1]!r}",
            param="rope_theta",
        )
    return thetas[0]


def _convert(fields: _Fields, values: dict[str, Any], kind: type[_ConfigT]) -> _ConfigT:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise invalid(f"{fields.path}: {error}", param=CONFIG_FILE) from error


_READERS: dict[str, Callable[[_Fields], Architecture]] = {
    "bert": _read_bert,
    "qwen3": _read_qwen3,
    _PPLX_TYPE: _read_pplx,
}
