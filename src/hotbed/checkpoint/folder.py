"""Where a model's files lie, and the errors about files that are not there or not readable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from hotbed.checkpoint.records import ModelSource
from hotbed.core.errors import HotbedError, invalid

_MAX_LISTED = 5
_CURE: dict[ModelSource, str] = {
    "folder": "",
    "package": "; the installed package is damaged: reinstall it",
    "hub": (
        "; the cached copy is incomplete (an interrupted download) or the repository has no such"
        " file: load it once with the network on, or give a folder"
    ),
}


class ModelFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that a model name was resolved to."""

    name: str
    """As asked for."""
    source: ModelSource
    path: Path

    def file(self, name: str) -> Path:
        """Path of a file that must be there.

        Raises:
            HotbedError: INVALID_INPUT naming the file. A dangling link, as an interrupted hub
                download leaves it, counts as missing.
        """
        path = self.path / name
        if not path.is_file():
            raise self.missing(name)
        return path

    def has(self, name: str) -> bool:
        return (self.path / name).is_file()

    def missing(self, name: str, why: str = "") -> HotbedError:
        """The error for a file that must be there and is not."""
        reason = f": {why}" if why else ""
        return invalid(
            f"model {self.name!r}: {name} is missing in {self.path}{reason}{_CURE[self.source]}",
            param=name,
        )

    def sub(self, name: str) -> ModelFolder:
        """The folder `name` inside this one; the same for an empty name.

        Raises:
            HotbedError: if the name leads outside.
        """
        inside = Path(name)
        if inside.is_absolute() or ".." in inside.parts:
            raise invalid(
                f"model {self.name!r}: the path {name!r} in modules.json leads outside the model"
                " folder",
                param="path",
            )
        return msgspec.structs.replace(self, path=self.path / inside)


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file, with NaN and a byte order mark allowed as Python's writers do.

    Raises:
        HotbedError: INVALID_INPUT if the file is not a JSON object.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise invalid(f"{path}: expected a JSON object", param=path.name)
    return value


def read_json(path: Path) -> Any:
    """Any JSON value from a file; INVALID_INPUT if it is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise invalid(f"{path}: not valid JSON ({error})", param=path.name) from error


def unsupported(
    file: Path, field: str, value: object, supported: tuple[object, ...]
) -> HotbedError:
    """The error for a known field with a value that Hotbed does not support."""
    shown = json.dumps(value, default=repr)
    if len(shown) > 120:
        shown = shown[:120] + "…"
    choices = ", ".join(json.dumps(s) for s in supported)
    return invalid(f"{file}: {field} is {shown}; supported: {choices}", param=field)


def listed(names: list[str]) -> str:
    """The first few names and how many more there are, for an error message."""
    more = len(names) - _MAX_LISTED
    shown = ", ".join(repr(name) for name in names[:_MAX_LISTED])
    return f"{shown} and {more} more" if more > 0 else shown or "none"
