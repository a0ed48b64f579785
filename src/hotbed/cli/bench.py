"""`hotbed bench` and `hotbed bench report`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from hotbed.bench.options import BenchOptions
from hotbed.cli.application import app

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
