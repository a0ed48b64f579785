"""One model's results as three plots beside each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hotbed.bench.report.results import Row, select, systems_of

# Okabe and Ito's colours, which people with any colour vision can tell apart.
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_FLOOR_COLOUR = "#777777"
_KNOWN = (
    *("hotbed", "vllm", "sentence-transformers", "transformers", "onnxruntime", "fastembed"),
    "infinity",
)


def plot(rows: Sequence[Row], model: str, path: Path) -> bool:
    """Latency against tokens with the floor, throughput against length, p99 against concurrency.

    Returns:
        Whether there was anything to draw; otherwise no file is written.
    """
    import matplotlib  # noqa: PLC0415

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "hotbed"  # the same numbers give the same file
    from matplotlib import pyplot  # noqa: PLC0415

    of_model = [row for row in select(rows, model=model) if "p50_ms" in row or "error" in row]
    panels = [
        panel
        for panel, suite in (
            (_latency, "latency"),
            (_throughput, "throughput"),
            (_p99, "concurrency"),
        )
        if any("p50_ms" in row for row in select(of_model, suite=suite))
    ]
    if not panels:
        return False
    figure, axes = pyplot.subplots(1, len(panels), figsize=(4.6 * len(panels), 4.8), squeeze=False)
    for panel, axis in zip(panels, axes[0], strict=True):
        panel(of_model, axis)
        axis.grid(visible=True, alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        # Below, where no line runs.
        axis.legend(
            fontsize=8, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16)
        )
    figure.suptitle(f"{model}, {of_model[0]['device']}")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
    return True


def _one_each(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """One value for each x: runs differ a little in the ceilings that they measured."""
    return sorted(dict(sorted(points)).items())


def _latency(rows: Sequence[Row], axis: Any) -> None:
    some = select(rows, suite="latency")
    for system in systems_of(some):
        _line(axis, system, select(some, system=system), "tokens", "p50_ms")
    floor = _one_each((r["tokens"], r["floor_ms"]) for r in some if "floor_ms" in r)
    axis.plot(*zip(*floor, strict=True), "--", color=_FLOOR_COLOUR, label="floor of the device")
    _log_scales(axis, [x for x, _ in floor])
    axis.set_xlabel("tokens of the text")
    axis.set_ylabel("p50, ms")
    axis.set_title("One text at a time")


def _throughput(rows: Sequence[Row], axis: Any) -> None:
    some = select(rows, suite="throughput")
    for system in systems_of(some):
        for way, style in (("clients", "o-"), ("offline", "o:")):
            found = select(some, system=system, way=way)
            if found:
                words = "clients" if way == "clients" else "in process"
                label = f"{system}, {words}"
                _line(axis, system, found, "tokens", "tokens_per_s", label=label, style=style)
    floor = _one_each(
        (r["tokens"], round(r["n"] * r["concurrency"] * r["tokens"] / r["floor_ms"] * 1e3))
        for r in select(some, system="hotbed")
        if "floor_ms" in r
    )
    if floor:
        axis.plot(*zip(*floor, strict=True), "--", color=_FLOOR_COLOUR, label="floor of the device")
    axis.set_xscale("log", base=2)
    _plain_ticks(axis, sorted({r["tokens"] for r in some}))
    axis.set_ylim(bottom=0)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.set_xlabel("tokens of each text")
    axis.set_ylabel("tokens/s")
    axis.set_title(f"{some[0]['n']} texts a request")


def _p99(rows: Sequence[Row], axis: Any) -> None:
    some = select(rows, suite="concurrency")
    for system in systems_of(some):
        _line(axis, system, select(some, system=system), "concurrency", "p99_ms")
    _log_scales(axis, sorted({r["concurrency"] for r in some}))
    axis.set_xlabel(f"requests of {some[0]['tokens']} tokens at a time, HTTP")
    axis.set_ylabel("p99, ms")
    axis.set_title("Concurrency")


def _line(
    axis: Any,
    system: str,
    rows: Sequence[Row],
    across: str,
    up: str,
    *,
    label: str | None = None,
    style: str = "o-",
) -> None:
    """A system's figures; where it failed the line is broken and its name says so."""
    points = sorted((row[across], row.get(up, math.nan)) for row in rows)
    words = [label or system]
    if any(row.get("different") for row in rows):
        words.append("rows differ")
    failed = [f"{x:,}" for x, y in points if math.isnan(y)]
    if failed:
        words.append(f"failed at {', '.join(failed)}")
    index = _KNOWN.index(system) if system in _KNOWN else len(_COLOURS) - 1
    axis.plot(
        *zip(*points, strict=True),
        style,
        color=_COLOURS[index],
        label=", ".join(words),
        markersize=4,
    )


def _log_scales(axis: Any, ticks: Sequence[float]) -> None:
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    _plain_ticks(axis, ticks)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axis.yaxis.set_minor_formatter(lambda value, _: f"{value:,g}" if _is_shown(value) else "")


def _is_shown(value: float) -> bool:
    """Of the small ticks of a logarithmic axis 2, 3 and 5."""
    return f"{value:e}"[0] in "235"


def _plain_ticks(axis: Any, ticks: Sequence[float]) -> None:
    axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axis.minorticks_off() if axis.get_yscale() == "linear" else axis.xaxis.set_tick_params(
        which="minor", bottom=False, labelbottom=False
    )
