"""Result rows: one JSON line a measurement, appended and never edited.

Fields are the same for every suite; one that was not measured is absent, not zero. A row with
``error`` says that a system failed, one with ``left_out`` why a cell was not measured.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from hotbed import __version__

ROOT = Path(__file__).resolve().parents[3]
"""Of the checkout."""
RESULTS = ROOT / "bench" / "results"


def percentiles(seconds: Iterable[float]) -> dict[str, float]:
    """p50, p90, p99 and max, in ms."""
    ms = np.asarray(list(seconds)) * 1e3
    p50, p90, p99 = np.percentile(ms, (50, 90, 99))
    named = {"p50_ms": p50, "p90_ms": p90, "p99_ms": p99, "max_ms": ms.max()}
    return {name: round(float(value), 3) for name, value in named.items()}


def row(suite: str, system: str, model: str, **fields: Any) -> dict[str, Any]:
    """A result row with where and when it was measured; `fields` may name version, device, torch
    and commit. Fields that are None are left out.
    """
    ours = system in ("hotbed", "ivy", "tulip")
    made = {
        "suite": suite,
        "system": system,
        "version": None,
        "model": model,
        **fields,
        "device": fields.get("device") or cpu_name(),
        "torch": fields.get("torch") or _version("torch"),
        "commit": fields.get("commit") or commit(),
        "date": datetime.date.today().isoformat(),
    }
    made["version"] = __version__ if ours else fields.get("version") or _version(system)
    return {name: value for name, value in made.items() if value is not None}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cpu_name() -> str:
    """The processor's name and the number of cores this process may use."""
    name = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def commit() -> str | None:
    """Short hash of HEAD, ``+`` where tracked files differ from it; None outside a checkout."""

    def git(*arguments: str) -> str:
        done = subprocess.run(  # noqa: S603
            ["git", "-C", str(ROOT), *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    if not (ROOT / ".git").exists():
        return None
    # Rows that this very run appends are no change of what was measured.
    dirty = git("status", "--porcelain", "--untracked-files=no", "--", ":!bench/results")
    return git("rev-parse", "--short", "HEAD") + ("+" if dirty else "")


def append(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows to a results file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(r) + "\n" for r in rows)


def show(title: str, rows: list[dict[str, Any]], columns: list[str]) -> None:
    """Print the named columns as a table."""
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="left" if column in ("system", "suite") else "right")
    for r in rows:
        table.add_row(*(_text(r.get(c, "")) for c in columns))
    Console().print(table)


def _text(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
