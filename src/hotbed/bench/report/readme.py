"""The README's tables, written from rows.

A table stands between ``<!-- numbers:NAME -->`` and ``<!-- /numbers -->``; of what was measured
again the newest run counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hotbed.bench.report.aims import PEER, PUBLISHED
from hotbed.bench.report.results import Row, by_device, markdown, newest, one, read, unique
from hotbed.core.errors import invalid

_CPU_SUITES = {
    "cpu-1-short": "one text of 12 tokens, p50 ms",
    "cpu-1": "one text at a time, tokens/s",
    "cpu-32": "32 texts, tokens/s",
    "cpu-1000": "1,000 texts, tokens/s",
}
# (what, cell, figure, unit) of the headline.
_HEADLINE: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    ("1 × 128, p50", {"suite": "latency", "n": 1, "tokens": 128}, "p50_ms", " ms"),
    ("1 × 4096, p50", {"suite": "latency", "n": 1, "tokens": 4096}, "p50_ms", " ms"),
    ("scoring 25 × 512, p50", {"suite": "scoring", "n": 25, "tokens": 512}, "p50_ms", " ms"),
    (
        "100 × 512, four clients",
        {"suite": "throughput", "way": "clients", "n": 100, "tokens": 512},
        "seq_per_s",
        "/s",
    ),
    (
        "512 tokens over HTTP, 16 at a time, p99",
        {"suite": "concurrency", "tokens": 512, "concurrency": 16},
        "p99_ms",
        " ms",
    ),
)


def write_readme(readme: Path, results: Path) -> list[str]:
    """Write every table that the README has a place for; returns their names.

    Args:
        readme: README.md.
        results: folder of the rows.

    Raises:
        HotbedError: INVALID_INPUT for a table that is not known.
    """
    tables: dict[str, Callable[[Path], str]] = {
        "cpu": _cpu_table,
        "h200": _engine_table,
        "side-by-side": _side_by_side,
    }
    text = readme.read_text(encoding="utf-8")
    names: list[str] = []

    def write(match: re.Match[str]) -> str:
        name = match[2]
        if name not in tables:
            known = ", ".join(tables)
            raise invalid(f"{readme} has a place for the table {name!r}; there are {known}")
        names.append(name)
        return f"{match[1]}{tables[name](results)}{match[3]}"

    pattern = r"(<!-- numbers:([\w-]+) -->\n).*?(<!-- /numbers -->)"
    text = re.sub(pattern, write, text, flags=re.DOTALL)
    readme.write_text(text, encoding="utf-8")
    return names


def _cpu_table(results: Path) -> str:
    rows = [r for r in read([results / "cpu.jsonl"]) if r["suite"] in _CPU_SUITES]
    rows = newest(rows, ("suite",))
    latest = {(r["system"], r["settings"], r["suite"]): r for r in rows}
    systems = list(dict.fromkeys((system, settings) for system, settings, _ in latest))
    systems.sort(key=lambda s: s[0] != "hotbed")
    lines = [["", *_CPU_SUITES.values()]]
    for system, settings in systems:
        cells = []
        for suite in _CPU_SUITES:
            row = latest.get((system, settings, suite))
            if row is None:
                cells.append("")
            elif suite == "cpu-1-short":
                cells.append(f"{row['p50_ms']:.1f}")
            else:
                cells.append(f"{row['tokens_per_s']:,}")
        how = next((w for w in ("arrival order", "sorted by length") if w in settings), "")
        lines.append([f"{system}{f', {how}' if how else ''}", *cells])
    where, when = (", ".join(unique(rows, name)) for name in ("device", "date"))
    return f"all-MiniLM-L6-v2, fp32, {where} ({when}):\n\n{markdown(lines)}"


def _engine_table(results: Path) -> str:
    rows = newest(read([results / "engine-h200.jsonl"]), ("model", "n", "tokens"))
    latest = {(r["model"], r["n"], r["tokens"], r["settings"]): r for r in rows}
    best: dict[tuple[str, int, int], Row] = {}  # over the step sizes
    for row in latest.values():
        key = (row["model"], row["n"], row["tokens"])
        if key not in best or row["device_ms"] < best[key]["device_ms"]:
            best[key] = row
    lines = [["", "Hotbed's engine", "floor of the card", "Perplexity", "vLLM 0.22"]]
    for (model, n, tokens), published in PUBLISHED.items():
        row = best[model, n, tokens]
        rate = n > 1
        ours = f"{n / row['p50_ms'] * 1e3:,.0f}/s" if rate else f"{row['p50_ms']:.2f} ms"
        floor = f"{n / row['floor_ms'] * 1e3:,.0f}/s" if rate else f"{row['floor_ms']:.2f} ms"
        lines.append([f"{model} shape, {n} × {tokens}", ours, floor, *published])
    return markdown(lines)


def _side_by_side(results: Path) -> str:
    """The headline of each GPU; nothing while there are no rows."""
    devices = by_device(read(sorted(results.glob("side-by-side-*.jsonl"))))
    parts = []
    for device, rows in devices.items():
        lines = [["", "Hotbed", PEER, "times"]]
        for model in unique(rows, "model"):
            lines += _headline(rows, model)
        if len(lines) > 1:
            versions = unique([row for row in rows if row["system"] == PEER], "version")
            lines[0][2] = f"vLLM {', '.join(versions)}"
            heading = f"Side by side on one {device}, the systems of a row in turn in one run"
            dates = sorted(unique(rows, "date"))
            parts.append(f"{heading} ({' to '.join(dict.fromkeys((dates[0], dates[-1])))}):\n\n")
            parts.append(markdown(lines) + "\n")
    return "".join(parts)


def _headline(rows: Sequence[Row], model: str) -> list[list[str]]:
    lines = []
    for what, cell, figure, unit in _HEADLINE:
        ours = one(rows, model=model, system="hotbed", **cell)
        theirs = one(rows, model=model, system=PEER, **cell)
        if ours is None or theirs is None:
            continue
        a, b = ours[figure], theirs[figure]
        times = a / b if unit == "/s" else b / a
        shown = [f"{x:,.0f}{unit}" if unit == "/s" else f"{x:.2f}{unit}" for x in (a, b)]
        lines.append([f"{model}, {what}", *shown, f"{times:.1f}"])
    return lines
