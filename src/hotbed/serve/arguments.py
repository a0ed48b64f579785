"""Turns a settings record back into the command line that builds it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def to_arguments(settings: DataclassInstance) -> list[str]:
    """Options for every field that differs from the field's default.

    ``--max-step-tokens=4096`` for a number or text, ``--offline`` or ``--no-offline`` for a bool,
    one option an element for a tuple.

    Raises:
        TypeError: a field's type has no form on the command line.
    """
    defaults = type(settings)()
    arguments: list[str] = []
    for field in fields(settings):
        value = getattr(settings, field.name)
        if value != getattr(defaults, field.name):
            arguments.extend(_option(field.name.replace("_", "-"), value))
    return arguments


def _option(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, (str, int, float, Path)):
        return [f"--{name}={value}"]
    if isinstance(value, tuple) and value:
        return [option for element in value for option in _option(name, element)]
    raise TypeError(f"{name}: {value!r} cannot be written as an option")
