"""The rows of a report: read, of the newest runs, and what a table shows of one.

Rows of two runs never stand in one line of a table: what was measured again is shown from the
newest run alone, with all systems of that run and no other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from hotbed.bench.cells import SUITES
from hotbed.core.errors import invalid

Row = dict[str, Any]

PART = ("model", "suite", "way")
"""What a run measures with all its systems in turn, and a newer run replaces as a whole."""
_CELL = ("n", "tokens", "concurrency")
_START = "start"
_TINY = "tiny"


def read(paths: Iterable[Path]) -> list[Row]:
    """All rows of these files, in their order.

    Raises:
        HotbedError: INVALID_INPUT naming the file that is empty, or the file and line that is no
            row.
    """
    found: list[Row] = []
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise invalid(f"{path} cannot be read: {error}", "rows") from error
        if not lines:
            raise invalid(f"{path} is empty: its run ended before anything was measured", "rows")
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise invalid(f"{path}, line {number} is no JSON: {error}", "rows") from error
            if not isinstance(row, dict) or "suite" not in row:
                raise invalid(f"{path}, line {number} is no row of the bench", "rows")
            if "size" in row:
                _check(row, f"{path}, line {number}")
            found.append(row)
    return found


def _check(row: Row, where: str) -> None:
    """Of a row of `hotbed bench`: the fields that tables and plots go by."""
    if row["suite"] not in (*SUITES, _START):
        known = ", ".join(SUITES)
        raise invalid(f"{where}: there is no suite {row['suite']!r}; there are {known}", "rows")
    names: tuple[str, ...] = ("system", "version", "model", "device", "dtype", "date")
    if row["suite"] != _START:
        names += ("way", *_CELL)
    outcomes = [n for n in ("error", "left_out", "absent", "p50_ms") if n in row]
    missing = [name for name in names if name not in row]
    if missing or len(outcomes) != 1:
        what = f"no {', '.join(missing)}" if missing else f"{outcomes or 'nothing'} as its outcome"
        raise invalid(f"{where}: a row of hotbed bench with {what}", "rows")


def run_of(row: Row) -> tuple[str, str]:
    """(when, commit): rows with the same were measured in one run. Older rows say the day alone."""
    return str(row.get("run", row["date"])), str(row.get("commit", "unknown"))


def run_words(row: Row) -> str:
    """The run for a page."""
    when, commit = run_of(row)
    return f"{when}, commit {commit}"


def newest(rows: Iterable[Row], part: Sequence[str] = PART) -> list[Row]:
    """Of rows measured again those of the newest run, in their order.

    Args:
        rows: of several runs, the older ones of one day first.
        part: fields; rows that are equal in them are replaced by a newer run as a whole.
    """
    some = list(rows)
    order = _order(some)
    last: dict[tuple[Any, ...], tuple[str, str]] = {}
    for row in some:
        key = tuple(row.get(name) for name in part)
        if key not in last or order[run_of(row)] > order[last[key]]:
            last[key] = run_of(row)
    return [r for r in some if last[tuple(r.get(name) for name in part)] == run_of(r)]


def _order(rows: Iterable[Row]) -> dict[tuple[str, str], tuple[str, int]]:
    """Runs by their time; those that say the day alone as their rows come."""
    found: dict[tuple[str, str], tuple[str, int]] = {}
    for row in rows:
        found.setdefault(run_of(row), (run_of(row)[0], len(found)))
    return found


def by_device(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by the name of the device, of the newest run of each part; other benches' left out.

    What a run says of systems that did not start stays as long as a part of it is shown, or it is
    the newest with its model.
    """
    found: dict[str, list[Row]] = {}
    for row in rows:
        if "size" in row:
            found.setdefault(row["device"], []).append(_labelled(row))
    shown = {}
    for device, some in found.items():
        cells = newest(row for row in some if row["suite"] != _START)
        kept = {(r["model"], run_of(r)) for r in (*cells, *newest(some, ("model",)))}
        ids = {id(row) for row in cells}
        shown[device] = [
            row
            for row in some
            if id(row) in ids or (row["suite"] == _START and (row["model"], run_of(row)) in kept)
        ]
    return shown


def replaced(rows: Iterable[Row], shown: Iterable[Row]) -> list[str]:
    """What newer runs replaced, in words."""
    ids = {(*(row.get(name) for name in PART), run_of(row)) for row in shown}
    found: dict[str, None] = {}
    for row in map(_labelled, rows):
        if row["suite"] != _START and (*(row.get(n) for n in PART), run_of(row)) not in ids:
            found[f"{row['model']}, {row['suite']} ({row['way']}) of {run_words(row)}"] = None
    return list(found)


def _labelled(row: Row) -> Row:
    """A trial of the bench itself is no result of the model that it is named after."""
    if row["size"] != _TINY:
        return row
    return row | {"model": f"{row['model']} ({_TINY})"}


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


def ratio_to_floor(row: Row) -> float:
    """Time over the floor's time; of throughput, by rates: of requests under way at a time some
    end before all could, so their latency says little.
    """
    if row["suite"] != "throughput":
        return float(row["ratio_to_floor"])
    rate = row["n"] * row["concurrency"] / row["floor_ms"] * 1e3
    return float(rate / row["seq_per_s"])


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
