"""Says how far a job is: a bar on a terminal, otherwise a plain line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from hotbed.bulk.policies import Counts

LINE_EVERY_S = 10.0
Report = Callable[[Counts, int], None]
"""(what became of rows since the last call, numbers of rows gone through in them)."""


class Rates:
    """Totals and rates of a run."""

    def __init__(self, total_rows: int, idle_s: Callable[[], float | None]) -> None:
        self.start = time.perf_counter()
        self.total_rows = total_rows
        self.rows = 0
        self.tokens = 0
        self._idle_s = idle_s

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / max(self.seconds, 1e-9)

    @property
    def device_use(self) -> float | None:
        """Share of the time in which a step was with the device; None: not known."""
        idle_s = self._idle_s()
        return None if idle_s is None else max(0.0, 1 - idle_s / max(self.seconds, 1e-9))

    @property
    def eta_s(self) -> float:
        """At the rate so far."""
        return (self.total_rows - self.rows) * self.seconds / max(self.rows, 1)

    def text(self) -> str:
        """Rates in words."""
        use = self.device_use
        device = "" if use is None else f", device busy {use:.0%}"
        return f"{self.tokens_per_s:,.0f} tokens/s{device}"


@contextmanager
def progress(rates: Rates, stream: TextIO) -> Iterator[Report]:
    """Yields what is to be called after each window."""

    def count(counts: Counts, num_rows: int) -> None:
        rates.rows += num_rows
        rates.tokens += counts.tokens

    if stream.isatty():
        columns = (
            TextColumn("embedding"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} rows  {task.description}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(file=stream)) as bar:
            task = bar.add_task("", total=rates.total_rows)

            def show(counts: Counts, num_rows: int) -> None:
                count(counts, num_rows)
                bar.update(task, completed=rates.rows, description=rates.text())

            yield show
        return
    last = rates.start

    def line(counts: Counts, num_rows: int) -> None:
        nonlocal last
        count(counts, num_rows)
        if time.perf_counter() - last >= LINE_EVERY_S:
            last = time.perf_counter()
            stream.write(
                f"{rates.rows:,} of {rates.total_rows:,} rows, {rates.text()}, "
                f"{duration(rates.eta_s)} to go\n"
            )
            stream.flush()

    yield line


def duration(seconds: float) -> str:
    """E.g. 1 h 02 min, 3 min 07 s, 12 s."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"
