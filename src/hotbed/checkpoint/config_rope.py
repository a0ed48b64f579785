"""The base of the rotary frequencies, wherever config.json states it."""

from __future__ import annotations

from hotbed.checkpoint.config_fields import Fields
from hotbed.checkpoint.folder import unsupported
from hotbed.core.errors import invalid


def read_rope_theta(fields: Fields) -> object:
    """The one base: top level, or in rope_parameters (transformers 5).

    There is no default: transformers' own has changed, and a wrong base gives wrong vectors.
    """
    thetas = [fields.values["rope_theta"]] if "rope_theta" in fields.values else []
    for field in ("rope_parameters", "rope_scaling"):
        block = fields.values.get(field)
        if block is None:
            continue
        if not isinstance(block, dict):
            raise unsupported(fields.path, field, block, (None,))
        _check_plain(fields, field, block)
        if "rope_theta" in block:
            thetas.append(block["rope_theta"])
    return _the_one(fields, "rope_theta", thetas, "at the top level and in rope_parameters")


def read_layer_theta(fields: Fields, layer_type: str, key: str) -> object:
    """The base of one kind of layers, in models that have two.

    Args:
        fields: of config.json.
        layer_type: key of rope_parameters (transformers 5), e.g. ``sliding_attention``.
        key: at the top level (before), e.g. ``local_rope_theta``.
    """
    fields.require("rope_scaling", None)
    thetas = [] if fields.values.get(key) is None else [fields.values[key]]
    blocks = fields.values.get("rope_parameters")
    block = blocks.get(layer_type) if isinstance(blocks, dict) else None
    if isinstance(block, dict):
        _check_plain(fields, f"rope_parameters.{layer_type}", block)
        if "rope_theta" in block:
            thetas.append(block["rope_theta"])
    return _the_one(fields, key, thetas, f"and rope_parameters has none for {layer_type}")


def _check_plain(fields: Fields, field: str, block: dict[str, object]) -> None:
    """Refuse scaled or partial rotation."""
    inner = Fields(fields.path, {f"{field}.{key}": value for key, value in block.items()})
    inner.require(f"{field}.rope_type", "default")
    inner.require(f"{field}.type", "default")
    inner.require(f"{field}.partial_rotary_factor", 1.0)


def _the_one(fields: Fields, name: str, thetas: list[object], where: str) -> object:
    if not thetas:
        raise invalid(f"{fields.path}: {name} is missing, {where}", param=name)
    if any(theta != thetas[0] for theta in thetas):
        raise invalid(
            f"{fields.path}: {name} is stated twice and differs: {thetas[0]!r} and {thetas[-1]!r}",
            param=name,
        )
    return thetas[0]
