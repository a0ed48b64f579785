"""`hotbed bench` and `hotbed bench report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from hotbed.bench.options import BenchOptions
from hotbed.cli.application import app
from hotbed.core.errors import invalid

bench = App(name="bench", help="Measure side by side with other systems, and report.")
app.command(bench)


@bench.default
def measure(
    options: Annotated[BenchOptions, Parameter(name="*")] = BenchOptions(),  # noqa: B008
) -> int:
    """Measure Hotbed and other systems side by side, on the same weights and texts.

    All run at the same time, each in its own process, and are timed in turn. Before that their rows
    are compared; a system whose rows differ ends the run.
    """
    from hotbed.bench.run import run  # noqa: PLC0415

    return run(options)


@bench.command
def report(
    *rows: Path,
    out: Path = Path("docs/benchmarks"),
    readme: Path | None = None,
    results: Path = Path("bench/results"),
) -> int:
    """Write the results as pages with tables and plots, a page for each device.

    Args:
        rows: files that `hotbed bench --out` wrote.
        out: folder for the pages and their plots.
        readme: README.md whose tables shall be written anew.
        results: folder of the rows that the README's tables come from.
    """
    if not rows and readme is None:
        raise invalid("hotbed bench report: give files of rows, or --readme", "rows")
    if rows:
        from hotbed.bench.report.page import write_pages  # noqa: PLC0415

        for path in write_pages(rows, out):
            sys.stdout.write(f"{path}\n")
    if readme is not None:
        from hotbed.bench.report.readme import write_readme  # noqa: PLC0415

        sys.stdout.write(f"{readme}: {', '.join(write_readme(readme, results))}\n")
    return 0
