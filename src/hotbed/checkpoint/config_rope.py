"""The base of the rotary frequencies and their scaling, wherever config.json states them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import msgspec

from hotbed.checkpoint.config_fields import Fields
from hotbed.checkpoint.folder import unsupported
from hotbed.core.errors import invalid
from hotbed.core.rope import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    RopeScaling,
    YarnScaling,
)

_BLOCKS = ("rope_parameters", "rope_scaling")
_KINDS: dict[str, type[RopeScaling]] = {
    "linear": LinearScaling,
    "dynamic": DynamicScaling,
    "llama3": Llama3Scaling,
    "yarn": YarnScaling,
}
ROPE_TYPES = ("default", *_KINDS)
"""What `rope_type` may be."""


class Rope(NamedTuple):
    """How q and k are rotated.

    Attributes:
        theta: as the file has it; the family's record checks its type and range.
        scaling: None: there is none.
        longest: positions that there are: max_position_embeddings, or what the scaling makes of
            the positions in training.
    """

    theta: object
    scaling: RopeScaling | None
    longest: int


def read_rope(fields: Fields) -> Rope:
    """The one rotation of all layers: at the top level, in rope_parameters or in rope_scaling.

    There is no default for the base: transformers' own has changed, and a wrong base gives wrong
    vectors.

    Raises:
        HotbedError: INVALID_INPUT naming the field: a type that is not supported, a number of it
            that is missing or out of range, partial rotation, or two statements that differ.
    """
    fields.require("partial_rotary_factor", 1.0)
    thetas = [fields.values.get("rope_theta")]
    scalings: list[RopeScaling | None] = []
    for field in _BLOCKS:
        block = fields.values.get(field)
        if block is None:
            continue
        if not isinstance(block, dict):
            raise unsupported(fields.path, field, block, (None,))
        scalings.append(_scaling(fields, field, block))
        thetas.append(block.get("rope_theta"))
    theta = _the_one(fields, "rope_theta", thetas, "at the top level and in rope_parameters")
    if any(scaling != scalings[0] for scaling in scalings):
        raise invalid(
            f"{fields.path}: rope_scaling and rope_parameters state different rotations",
            param="rope_scaling",
        )
    return _rope(fields, theta, scalings[0] if scalings else None)


def read_layer_rope(fields: Fields, layer_type: str, key: str, *, scaled: bool = False) -> Rope:
    """The rotation of one kind of layers, in models that have two.

    Args:
        fields: of config.json.
        layer_type: key of rope_parameters (transformers 5), e.g. ``sliding_attention``.
        key: of the base at the top level (before), e.g. ``local_rope_theta``.
        scaled: whether these layers may be scaled; rope_scaling, at the top level, is theirs.

    Raises:
        HotbedError: as `read_rope`.
    """
    blocks = fields.values.get("rope_parameters")
    block = blocks.get(layer_type) if isinstance(blocks, dict) else None
    field = f"rope_parameters.{layer_type}"
    if not isinstance(block, dict):
        block = {}
    if not scaled:
        _require_plain(fields, field, block)
    elif isinstance(over := fields.values.get("rope_scaling"), dict):
        block, field = block | over, "rope_scaling"  # laid over the other, as transformers does
    thetas = [fields.values.get(key), block.get("rope_theta")]
    theta = _the_one(fields, key, thetas, f"and rope_parameters has none for {layer_type}")
    return _rope(fields, theta, _scaling(fields, field, block))


def _require_plain(fields: Fields, field: str, block: dict[str, Any]) -> None:
    inner = Fields(fields.path, {f"{field}.{key}": value for key, value in block.items()})
    inner.require(f"{field}.rope_type", "default")
    inner.require(f"{field}.type", "default")


def _scaling(fields: Fields, field: str, block: dict[str, Any]) -> RopeScaling | None:
    """The scaling that a block of config.json states."""
    inner = Fields(fields.path, {f"{field}.{key}": value for key, value in block.items()})
    inner.require(f"{field}.partial_rotary_factor", 1.0)
    name = "type" if block.get("rope_type") is None else "rope_type"
    kind = block.get(name) or "default"
    inner.require(f"{field}.{name}", *ROPE_TYPES)
    if kind == "default":
        return None
    values = {key: value for key, value in block.items() if value is not None}
    values |= {
        "type": kind,
        "original_max_position_embeddings": _trained_positions(fields, kind, values),
    }
    try:
        if kind == "yarn":
            values = _yarn_defaults(fields, values)
        scaling = msgspec.convert(values, _KINDS[kind])
    except (msgspec.ValidationError, TypeError, ValueError, ZeroDivisionError) as error:
        raise invalid(f"{fields.path}: {field} ({kind}): {error}", param=field) from error
    if isinstance(scaling, Llama3Scaling) and scaling.high_freq_factor <= scaling.low_freq_factor:
        raise invalid(
            f"{fields.path}: {field}: high_freq_factor ({scaling.high_freq_factor}) must be above"
            f" low_freq_factor ({scaling.low_freq_factor})",
            param=field,
        )
    return scaling


def _trained_positions(fields: Fields, kind: str, values: dict[str, Any]) -> object:
    """max_position_embeddings unless the file says more; at the top level it is meant first."""
    longest = fields.count("max_position_embeddings")
    if kind == "dynamic":
        return longest
    stated = fields.values.get("original_max_position_embeddings")
    return values.get("original_max_position_embeddings", longest) if stated is None else stated


def _yarn_defaults(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """YaRN's factor and magnitude where the file leaves them out (arXiv 2309.00071, 3.4)."""
    longest = fields.count("max_position_embeddings")
    factor = values.get("factor", longest / values["original_max_position_embeddings"])

    def of(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0

    part, all_dims = values.get("mscale"), values.get("mscale_all_dim")
    magnitude = of(part) / of(all_dims) if part and all_dims else of(1.0)
    return values | {
        "factor": factor,
        "magnitude": values.get("attention_factor", magnitude),
    }


def _rope(fields: Fields, theta: object, scaling: RopeScaling | None) -> Rope:
    longest = fields.count("max_position_embeddings")
    if isinstance(scaling, DynamicScaling):
        longest = int(scaling.original_max_position_embeddings * scaling.factor)
    elif isinstance(scaling, YarnScaling):  # files come with the old limit and with the new one
        longest = max(longest, int(scaling.original_max_position_embeddings * scaling.factor))
    return Rope(theta, scaling, longest)


def _the_one(fields: Fields, name: str, stated: list[object], where: str) -> object:
    thetas = [theta for theta in stated if theta is not None]
    if not thetas:
        raise invalid(f"{fields.path}: {name} is missing, {where}", param=name)
    if any(theta != thetas[0] for theta in thetas):
        raise invalid(
            f"{fields.path}: {name} is stated twice and differs: {thetas[0]!r} and {thetas[-1]!r}",
            param=name,
        )
    return thetas[0]
