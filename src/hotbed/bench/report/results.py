"""The rows of a report: read, the latest of each cell, and what a table shows of one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from hotbed.core.errors import invalid

Row = dict[str, Any]

_KEY = ("model", "system", "suite", "way", "n", "tokens", "concurrency")


def read(paths: Iterable[Path]) -> list[Row]:
    """All rows of these files, in their order.

    Raises:
        HotbedError: INVALID_INPUT naming the file and line that is no JSON object.
    """
    found: list[Row] = []
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise invalid(f"{path} cannot be read: {error}", "rows") from error
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise invalid(f"{path}, line {number} is no JSON: {error}", "rows") from error
            if not isinstance(row, dict) or "suite" not in row:
                raise invalid(f"{path}, line {number} is no row of the bench", "rows")
            found.append(row)
    return found


def latest(rows: Iterable[Row]) -> list[Row]:
    """Of rows measured again the last one, in the order of their first."""
    kept: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        kept[tuple(row.get(name) for name in _KEY)] = row
    return list(kept.values())


def by_device(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by the name of the device, the latest of each cell; those of other benches left out."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if "size" in row:
            found.setdefault(row["device"], []).append(row)
    return {device: latest(some) for device, some in found.items()}


def unique(rows: Iterable[Row], name: str) -> list[Any]:
    """Values of a field, in their order."""
    return list(dict.fromkeys(row[name] for row in rows if name in row))


def select(rows: Iterable[Row], **fields: Any) -> list[Row]:
    """Rows with these values."""
    return [row for row in rows if all(row.get(k) == v for k, v in fields.items())]


def one(rows: Iterable[Row], **fields: Any) -> Row | None:
    """The row with these values and with numbers, or None."""
    found = [row for row in select(rows, **fields) if "p50_ms" in row]
    return found[-1] if found else None


def systems_of(rows: Sequence[Row]) -> list[str]:
    """Systems, Hotbed first."""
    return sorted(unique(rows, "system"), key=lambda name: name != "hotbed")


def cell_text(rows: Sequence[Row], show: Callable[[Row], str], **fields: Any) -> str:
    """What a table's cell says: a number, or why there is none; empty if it was not asked for."""
    found = select(rows, **fields)
    if not found:
        return ""
    row = found[-1]
    if "error" in row:
        return "**failed**"
    if "left_out" in row:
        return "left out"
    return show(row) + (" (different)" if row.get("different") else "")


def markdown(lines: Iterable[Sequence[str]]) -> str:
    """A table; its first line is the head, its first column holds names."""
    head, *body = [f"| {' | '.join(line)} |\n" for line in lines]
    columns = head.count("|") - 1
    return head + "|" + "---|" + "--:|" * (columns - 1) + "\n" + "".join(body)
