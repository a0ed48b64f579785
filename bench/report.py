"""Writes the README's tables from bench/results: `python -m bench.report`.

A table stands between ``<!-- numbers:NAME -->`` and ``<!-- /numbers -->``; of rows measured again
the latest count.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from hotbed.bench.rows import RESULTS, ROOT

Row = dict[str, Any]

CPU_SUITES = {
    "cpu-1-short": "one text of 12 tokens, p50 ms",
    "cpu-1": "one text at a time, tokens/s",
    "cpu-32": "32 texts, tokens/s",
    "cpu-1000": "1,000 texts, tokens/s",
}
# Published by Perplexity (Fast Embeddings on GPUs, September 2026) and, for vLLM 0.22, by them too:
# H200, p50 in ms or sequences a second.
PUBLISHED = {
    ("pplx-embed-0.6b", 1, 128): ("1.88 ms", "4.94 ms"),
    ("pplx-embed-0.6b", 1, 4096): ("15.41 ms", "16.15 ms"),
    ("pplx-embed-0.6b", 100, 512): ("927/s", "902/s"),
    ("bge-m3", 1, 128): ("1.53 ms", "4.60 ms"),
    ("bge-m3", 1, 4096): ("9.57 ms", "11.71 ms"),
    ("bge-m3", 100, 512): ("1,499/s", "1,342/s"),
}


def main() -> int:
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    tables: dict[str, Callable[[], str]] = {"cpu": cpu_table, "h200": h200_table}
    for name, table in tables.items():
        pattern = rf"(<!-- numbers:{name} -->\n).*?(<!-- /numbers -->)"
        text, count = re.subn(
            pattern, lambda m, t=table: f"{m[1]}{t()}{m[2]}", text, flags=re.DOTALL
        )
        if count != 1:
            sys.exit(f"README.md has {count} places for the table {name!r}, not one")
    readme.write_text(text, encoding="utf-8")
    return 0


def rows_of(file: str) -> list[Row]:
    lines = (RESULTS / file).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def cpu_table() -> str:
    rows = [r for r in rows_of("cpu.jsonl") if r["suite"] in CPU_SUITES]
    latest = {(r["system"], r["settings"], r["suite"]): r for r in rows}
    systems = list(dict.fromkeys((system, settings) for system, settings, _ in latest))
    systems.sort(key=lambda s: s[0] != "hotbed")
    lines = [["", *CPU_SUITES.values()]]
    for system, settings in systems:
        cells = []
        for suite in CPU_SUITES:
            row = latest.get((system, settings, suite))
            if row is None:
                cells.append("")
            elif suite == "cpu-1-short":
                cells.append(f"{row['p50_ms']:.1f}")
            else:
                cells.append(f"{row['tokens_per_s']:,}")
        how = next((w for w in ("arrival order", "sorted by length") if w in settings), "")
        lines.append([f"{system}{f', {how}' if how else ''}", *cells])
    any_row = next(iter(latest.values()))
    return f"all-MiniLM-L6-v2, fp32, {any_row['device']} ({any_row['date']}):\n\n{markdown(lines)}"


def h200_table() -> str:
    latest = {
        (r["model"], r["n"], r["tokens"], r["settings"]): r for r in rows_of("engine-h200.jsonl")
    }
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


def markdown(lines: Iterable[list[str]]) -> str:
    head, *body = [f"| {' | '.join(line)} |\n" for line in lines]
    columns = head.count("|") - 1
    return head + "|" + "---|" + "--:|" * (columns - 1) + "\n" + "".join(body)


if __name__ == "__main__":
    sys.exit(main())
