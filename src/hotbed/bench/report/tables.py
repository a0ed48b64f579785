"""One device's results as Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hotbed.bench.report.aims import aims
from hotbed.bench.report.results import (
    Row,
    cell_text,
    markdown,
    one,
    ratio_to_floor,
    run_of,
    run_words,
    select,
    systems_of,
    unique,
)

_WAYS = {
    "offline": "in process",
    "clients": "client processes, token ids",
    "http": "HTTP",
}
_FEW, _BEATEN = "†", "‡"
_MANY_REQUESTS = 100
_LEAST_RATIO = 0.98
_NOTES = {
    _FEW: f"of fewer than {_MANY_REQUESTS} requests: hardly more than the slowest.",
    _BEATEN: "faster than the floor: the device was busier, or slower, when its ceilings were"
    " measured. Nothing can be said of the distance to it.",
}
_MEASURED = ("latency", "scoring", "concurrency", "throughput")


def overview(rows: Sequence[Row]) -> str:
    """For each model a table of each suite."""
    parts = []
    for model in unique(rows, "model"):
        of_model = select(rows, model=model)
        parts.append(f"## {model}\n")
        parts.append(_weights(of_model))
        for suite in _MEASURED:
            cells = [r for r in of_model if r["suite"] == suite]
            if cells:
                runs = _runs(cells) if len(_runs_of(rows)) > 1 else ""
                parts.append(f"### {_TITLES[suite]}\n\n{_table(cells, suite)}{runs}")
        made = _aims(of_model, model)
        if made:
            parts.append(f"### Aims\n\n{made}")
    return "\n".join(parts)


_TITLES = {
    "latency": "Latency: one text at a time, p50 / p99 ms",
    "scoring": "Scoring: several texts at once, p50 / p99 ms",
    "concurrency": "Concurrency: over HTTP with tokenising, p50 / p99 ms",
    "throughput": "Throughput: texts/s",
}


def _runs_of(rows: Sequence[Row]) -> set[tuple[str, str]]:
    return {run_of(row) for row in rows}


def _runs(rows: Sequence[Row]) -> str:
    """Of which run the lines of a table are, where a page has several."""
    by_way = {way: run_words(select(rows, way=way)[0]) for way in unique(rows, "way")}
    runs = list(dict.fromkeys(by_way.values()))
    if len(runs) == 1:
        return f"\nRun of {runs[0]}.\n"
    return "\n" + "; ".join(f"{_WAYS[w]}: run of {run}" for w, run in by_way.items()) + ".\n"


def _weights(rows: Sequence[Row]) -> str:
    is_random = any(r.get("random_weights") for r in rows)
    return "Seeded random weights in this shape.\n" if is_random else "Real weights.\n"


def _table(rows: Sequence[Row], suite: str) -> str:
    keys = list(dict.fromkeys((r["n"], r["tokens"], r["concurrency"], r["way"]) for r in rows))
    systems = systems_of(rows)
    show = _rate if suite == "throughput" else _times
    lines = [["", *systems, "floor", "hotbed / floor"]]
    for n, tokens, concurrency, way in keys:
        fields: dict[str, Any] = {
            "n": n,
            "tokens": tokens,
            "concurrency": concurrency,
            "way": way,
        }
        name = f"{n} × {tokens}"
        if suite == "concurrency":
            name = f"{tokens} tokens, {concurrency} at a time"
        elif suite == "throughput":
            name += f", {_WAYS[way]}" + (f", {concurrency} at a time" if concurrency > 1 else "")
        cells = [cell_text(rows, show, system=s, **fields) for s in systems]
        ours = one(rows, system="hotbed", **fields)
        floor = ratio = ""
        if ours is not None:
            rate = n * concurrency / ours["floor_ms"] * 1e3
            floor = _per_s(rate) if suite == "throughput" else _ms(ours["floor_ms"])
            ratio = _over_floor(ours)
        lines.append([name, *cells, floor, ratio])
    notes = "".join(
        f"\n{mark} {words}\n"
        for mark, words in _NOTES.items()
        if any(mark in cell for line in lines for cell in line)
    )
    return markdown(lines) + notes


def _aims(rows: Sequence[Row], model: str) -> str:
    found = aims(rows, model)
    if not found:
        return ""
    lines = [["", "wanted", "reached", "", "figures"]]
    lines += [[a.what, f"{a.wanted:g}×", f"{a.times:.2f}×", a.verdict, a.figures] for a in found]
    return markdown(lines)


def everything(rows: Sequence[Row]) -> str:
    """All figures of all cells."""
    head = ["model", "suite", "how", "texts", "tokens", "at a time", "system", "requests"]
    head += ["p50 ms", "p90 ms", f"p99 ms ({_FEW}: of few)", "max ms"]
    head += ["texts/s", "tokens/s", "TFLOP/s"]
    head += ["floor ms", "/ floor", "cosine to Hotbed", "to fp32"]
    lines = [head]
    for row in rows:
        if "p50_ms" not in row:
            continue
        lines.append(
            [
                row["model"],
                row["suite"],
                _WAYS[row["way"]],
                *(str(row[name]) for name in ("n", "tokens", "concurrency")),
                row["system"] + (" (different)" if row.get("different") else ""),
                f"{row['requests']:,}",
                *(_ms(row[f"{name}_ms"]) for name in ("p50", "p90")),
                _p99(row),
                _ms(row["max_ms"]),
                f"{row['seq_per_s']:,.1f}",
                f"{row['tokens_per_s']:,}",
                f"{row['tflops']:.1f}" if row["tflops"] >= 1 else f"{row['tflops']:.3f}",
                _ms(row["floor_ms"]),
                _over_floor(row),
                *_nearness(row),
            ]
        )
    return markdown(lines)


def _nearness(row: Row) -> tuple[str, str]:
    if "score_difference_max" in row:
        reference = row.get("score_difference_reference")
        return (
            f"± {row['score_difference_max']:.4f}",
            "" if reference is None else f"± {reference:.4f}",
        )
    reference = row.get("cosine_reference")
    return (
        f"{row['cosine_min']:.5f}" if "cosine_min" in row else "",
        "" if reference is None else f"{reference:.5f}",
    )


def failures(rows: Sequence[Row]) -> str:
    """Who failed and how, what was left out and who is not there; empty if all is well."""
    parts = []
    for row in rows:
        where = f"{row['system']}, {row['model']}" + _cell_words(row)
        if row.get("failed_before"):
            continue
        if "error" in row:
            parts.append(f"- **{where}: failed.** {_plain(row['error'])}\n")
            tail = row.get("log_tail", [])
            if tail:
                log = "\n".join(f"      {line}" for line in tail)
                parts.append(f"\n{log}\n\n")
        elif "left_out" in row:
            parts.append(f"- {where}: left out, {row['left_out']}\n")
    for why, systems in _absent(rows).items():
        parts.append(f"- {', '.join(systems)}: {why}\n")
    return "".join(parts)


def _absent(rows: Sequence[Row]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        if "absent" in row and row["system"] not in found.setdefault(row["absent"], []):
            found[row["absent"]].append(row["system"])
    return found


def _cell_words(row: Row) -> str:
    if "n" not in row:
        return f" ({row['way']})" if "way" in row else ""
    at_a_time = f", {row['concurrency']} at a time" if row["concurrency"] > 1 else ""
    return f", {row['suite']} {row['n']} × {row['tokens']}{at_a_time} ({_WAYS[row['way']]})"


def settings(rows: Sequence[Row]) -> str:
    """How each system ran."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if "settings" in row and "p50_ms" in row:
            name = f"{row['system']} {row['version']}"
            if row["settings"] not in found.setdefault(name, []):
                found[name].append(row["settings"])
    return "".join(f"- **{name}**: {text}\n" for name, texts in found.items() for text in texts)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _times(row: Row) -> str:
    return f"{_ms(row['p50_ms'])} / {_p99(row)}"


def _p99(row: Row) -> str:
    return _ms(row["p99_ms"]) + (_FEW if row["requests"] < _MANY_REQUESTS else "")


def _rate(row: Row) -> str:
    return _per_s(row["seq_per_s"])


def _per_s(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:,.1f}"


def _over_floor(row: Row) -> str:
    ratio = ratio_to_floor(row)
    return f"{ratio:.2f}{_BEATEN if ratio < _LEAST_RATIO else ''}"


def _ms(value: float) -> str:
    return f"{value:,.1f}" if value >= 100 else f"{value:.2f}"
