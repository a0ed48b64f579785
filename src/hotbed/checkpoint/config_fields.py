"""The keys of one config.json with the checks that every family makes, and what they add up to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from hotbed.checkpoint.folder import unsupported
from hotbed.checkpoint.records import ArchitectureConfig, FamilyName, HeadKind, Quantizer
from hotbed.core.errors import invalid

CONFIG_FILE = "config.json"
_LAYER_TYPES = ("full_attention", "sliding_attention")
_ConfigT = TypeVar("_ConfigT")


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """What config.json says of the model.

    Attributes:
        name: ``architectures[0]``; the family's plain encoder class where the file names none.
        quantizer: the model's own recipe for int8 rows.
        separates_chunks: whether a separator stands between the chunks of a document.
    """

    family: FamilyName
    name: str
    config: ArchitectureConfig
    quantizer: Quantizer = "none"
    separates_chunks: bool = False

    @property
    def is_causal(self) -> bool:
        return getattr(self.config, "is_causal", False)


class ModelType(NamedTuple):
    """How one ``model_type`` is read; each reader's file has a table of its own, `TYPES`.

    Attributes:
        family: what the reader makes of it.
        read: from the keys and ``architectures[0]``.
        classes: that ``architectures`` may name; the first one is meant where it names none.
        example: what people serve of it, for orientation: what counts is the config.
        heads: of those of the classes that score.
    """

    family: FamilyName
    read: Callable[[Fields, str], Architecture]
    classes: tuple[str, ...]
    example: str
    heads: Mapping[str, HeadKind] = {}


class Fields:
    """The keys of one config.json, and the checks on them."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path = path
        self.values = values

    def require(self, field: str, *supported: object) -> None:
        """Refuse any value but the supported ones; absent and null mean the first of them."""
        value = self.values.get(field)
        if value is not None and value not in supported:
            raise unsupported(self.path, field, value, supported)

    def require_stated(self, field: str, wanted: object) -> None:
        """Refuse any value but one, and its absence: where that means something else."""
        if (value := self.values.get(field)) != wanted:
            raise unsupported(self.path, field, value, (wanted,))

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

    def layer_types(self, by_default: Callable[[int], bool]) -> tuple[bool, ...]:
        """For each layer whether its attention is local, from ``layer_types``.

        Args:
            by_default: layer number to whether it is local, for files without the list.

        Raises:
            HotbedError: INVALID_INPUT naming a type that is not supported, or the list's length.
        """
        num_layers = self.count("num_hidden_layers")
        types = self.values.get("layer_types")
        if types is None:
            return tuple(by_default(layer) for layer in range(num_layers))
        if not isinstance(types, list) or len(types) != num_layers:
            raise invalid(
                f"{self.path}: layer_types must name {num_layers} layers (num_hidden_layers)",
                "layer_types",
            )
        for layer_type in types:
            if layer_type not in _LAYER_TYPES:
                raise unsupported(self.path, "layer_types", layer_type, _LAYER_TYPES)
        return tuple(layer_type == "sliding_attention" for layer_type in types)

    def count(self, field: str) -> int:
        """A field that must be there and be a whole number of at least 1."""
        value = self.values.get(field)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise invalid(
                f"{self.path}: {field} is {value!r}; it must be a number of at least 1", field
            )
        return value

    def number(self, field: str) -> float:
        """A field that must be there and be a number of at least 1."""
        value = self.values.get(field)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
            raise invalid(
                f"{self.path}: {field} is {value!r}; it must be a number of at least 1", field
            )
        return float(value)

    def convert(self, kind: type[_ConfigT], **changes: object) -> _ConfigT:
        """The family's record from the keys, with `changes` in place of theirs.

        Raises:
            HotbedError: INVALID_INPUT naming the key that is missing or has a wrong type or range.
        """
        try:
            return msgspec.convert(self.values | changes, kind)
        except msgspec.ValidationError as error:
            raise invalid(f"{self.path}: {error}", param=CONFIG_FILE) from error
