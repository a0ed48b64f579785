"""A page a device: aims, tables, plots, failures and settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from hotbed.bench.report import tables
from hotbed.bench.report.plots import plot
from hotbed.bench.report.results import Row, by_device, read, replaced, unique
from hotbed.core.errors import invalid

_FACTS = (
    ("driver", "driver"),
    ("torch", "torch"),
    ("threads", "threads"),
    ("commit", "Hotbed at commit"),
)


def write_pages(rows: Sequence[Path], out: Path) -> list[Path]:
    """Write a page with its plots for each device of these rows.

    Raises:
        HotbedError: INVALID_INPUT for a file that holds no rows of `hotbed bench`.
    """
    found = read(rows)
    devices = by_device(found)
    if not devices:
        raise invalid("no rows of hotbed bench in these files", "rows")
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for device, some in devices.items():
        name = slug(device)
        plots = {}
        for model in unique(some, "model"):
            path = out / f"{name}-{slug(model)}.svg"
            if plot(some, model, path):
                plots[model] = path.name
        page = out / f"{name}.md"
        of_device = [row for row in found if "size" in row and row["device"] == device]
        page.write_text(_page(device, some, plots, replaced(of_device, some)), encoding="utf-8")
        written.append(page)
    return written


def slug(text: str) -> str:
    """For a file's name."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def _page(device: str, rows: Sequence[Row], plots: dict[str, str], older: Sequence[str]) -> str:
    facts = []
    for name, words in _FACTS:
        values = unique(rows, name)
        if values:
            facts.append(f"{words} {', '.join(map(str, values))}")
    measured = [row for row in rows if "p50_ms" in row]
    dates = sorted(unique(rows, "date"))
    parts = [
        f"# Side by side on {device}\n",
        "Written by `hotbed bench report`; [README.md](README.md) says how it was measured.",
        f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}; {'; '.join(facts)};"
        f" compute type {', '.join(unique(rows, 'dtype'))}.\n",
    ]
    if older:
        lines = "".join(f"- {text}\n" for text in older)
        parts.append(f"## Measured again since\n\nNot shown here:\n\n{lines}")
    trouble = tables.failures(rows)
    if trouble:
        parts.append(f"## Not measured\n\n{trouble}")
    text = tables.overview(rows)
    for model, file in plots.items():
        text = text.replace(f"## {model}\n", f"## {model}\n\n![{model}]({file})\n", 1)
    parts.append(text)
    if measured:
        parts.append(f"## How each system ran\n\n{tables.settings(rows)}")
        parts.append(f"## All figures\n\n{tables.everything(rows)}")
    return "\n".join(parts)
