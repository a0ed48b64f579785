"""Writes the rows of a run as they come, and says the same in a line each."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from hotbed.bench import rows
from hotbed.bench.cells import Cell, Size
from hotbed.bench.options import BenchOptions
from hotbed.bench.start import NOT_INSTALLED, Lost, Started
from hotbed.bench.subjects import Device, Model


class Recorder:
    """Appends to the options' file.

    Args:
        options: of the run.
        device: for the rows.
        size: for the rows.
        say: takes a line for the user.
    """

    def __init__(
        self, options: BenchOptions, device: Device, size: Size, say: Callable[[str], None]
    ) -> None:
        self._options = options
        self._device = device
        self._size = size
        self._say = say
        self._commit = options.commit or rows.commit()  # of the run: the tree may move on
        self._run = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.has_failures = False
        """Whether anything failed that is installed."""

    def absent(self, model: Model, started: Started) -> None:
        """A row for each system that is not there."""
        for system, why in started.absent.items():
            self._append([self._row(None, system, model, started, absent=why)])
            if why == NOT_INSTALLED:
                self._say(f"{model.name}: {system} is {why}")

    def lost(self, model: Model, started: Started, name: str, lost: Lost) -> None:
        """A row for a member that failed outside of a cell."""
        self.has_failures = True
        way = name.partition(" ")[2] or None
        fields = {"way": way, "error": lost.message, "log_tail": list(lost.log_tail)}
        self._append([self._row(None, lost.system, model, started, **fields)])
        self._say(f"{model.name}: {name} FAILED: {lost.message}")

    def cell(
        self,
        cell: Cell,
        model: Model,
        started: Started,
        fields: dict[str, dict[str, Any]],
        why_left_out: str | None,
    ) -> None:
        """A row a system: `fields` by system."""
        self.has_failures |= any("error" in some for some in fields.values())
        made = [self._row(cell, name, model, started, **some) for name, some in fields.items()]
        # A member that failed before is named in each cell that it would have been in.
        for lost in started.lost.values():
            if cell.way in lost.ways and lost.system not in fields:
                again = {"error": lost.message, "failed_before": True}
                made.append(self._row(cell, lost.system, model, started, **again))
        self._append(made)
        self._say(f"{model.name}: {cell}: " + (why_left_out or "; ".join(map(_brief, made))))

    def _append(self, made: list[dict[str, Any]]) -> None:
        rows.append(self._options.out, made)

    def _row(
        self, cell: Cell | None, system: str, model: Model, started: Started, **fields: Any
    ) -> dict[str, Any]:
        place: dict[str, Any] = {}
        if cell is not None:
            place = {
                "n": cell.n,
                "tokens": cell.tokens,
                "concurrency": cell.concurrency,
                "way": cell.way,
            }
        return rows.row(
            cell.suite if cell is not None else "start",
            system,
            model.name,
            **{
                **place,
                **fields,
                "version": started.versions.get(system, "unknown"),
                "run": self._run,
                "size": self._size,
                "threads": self._options.threads,
                "random_weights": model.random_weights,
                "dtype": self._device.dtype,
                "device": self._device.name,
                "driver": self._device.driver,
                "torch": self._device.torch,
                "commit": self._commit,
            },
        )


def _brief(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['system']} FAILED: {row['error']}"
    is_rate = row["suite"] == "throughput"
    return f"{row['system']} " + (
        f"{row['seq_per_s']:,.1f}/s" if is_rate else f"p50 {row['p50_ms']:.2f} ms"
    )
