"""`hotbed bench`: starts all systems with all models, checks them, times them, writes rows."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from hotbed.bench import rows
from hotbed.bench.cells import Cell, Size, cells
from hotbed.bench.inputs import Inputs
from hotbed.bench.measure import Outcome, Pace, figures, least_pass_s, measure_cell
from hotbed.bench.options import BenchOptions
from hotbed.bench.record import Recorder
from hotbed.bench.right_first import Checked, RightFirst
from hotbed.bench.start import Started, Starter
from hotbed.bench.subjects import Device, Model, prepare
from hotbed.bench.texts import corpus
from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.exit_codes import EXIT_FAILURE

_CPU_PAUSE_S = 0.3


def run(options: BenchOptions) -> int:
    """Run it; returns the exit code: 0 only if every system that is installed did all of it.

    Raises:
        HotbedError: INVALID_INPUT for what cannot be run; INTERNAL if systems disagree.
    """
    begin = time.monotonic()
    if "hotbed" not in options.system_names:
        raise HotbedError(
            ErrorCode.INVALID_INPUT, "--systems: hotbed is what others are held to", param="systems"
        )
    # Before the minutes of loading: a path that cannot be written is found now.
    rows.append(options.out, [])
    logs = options.out.with_suffix(".logs")
    text = corpus(options.texts)
    device, models = prepare(options, logs, _say)
    starter = Starter(options, device.type, logs, _say)
    try:
        return _Run(options, device, starter, text, begin).run(models)
    finally:
        starter.close()


class _Run:
    """What the steps of one run share."""

    def __init__(
        self, options: BenchOptions, device: Device, starter: Starter, text: str, begin: float
    ) -> None:
        self._options = options
        self._device = device
        self._starter = starter
        self._text = text
        self._begin = begin
        self._size: Size = options.sizes_for(device.type)
        self._recorder = Recorder(options, device, self._size, _say)

    def run(self, models: Sequence[Model]) -> int:
        options, device = self._options, self._device
        reads, matmul = device.ceilings.read_bytes_per_s, device.ceilings.matmul_flops
        _say(
            f"{device.name}: reads {reads / 1e12:.3f} TB/s, {device.dtype} matmul"
            f" {matmul / 1e12:.2f} TFLOP/s"
        )
        inputs = {m.name: Inputs(Tokenizer.from_file(m.tokenizer), self._text) for m in models}
        plan = {m.name: self._cells_of(m) for m in models}
        found = self._starter.start(models, plan)
        # While they load: cutting the texts takes a second or two a model.
        for model in models:
            for cell in self._planned(plan[model.name], model):
                inputs[model.name].of_cell(cell)
        self._starter.wait()
        for model in models:
            self._recorder.absent(model, found[model.name])
            for name, lost in found[model.name].lost.items():
                self._recorder.lost(model, found[model.name], name, lost)
        check = RightFirst(options, self._size, self._starter, self._recorder, _say)
        checked = {
            m.name: check.check(m, found[m.name], inputs[m.name], self._planned(plan[m.name], m))
            for m in models
        }
        order = [(i, m, c) for m in models for i, c in enumerate(plan[m.name])]
        # The first cells of all models, then the second ones: a run that ends early has some of
        # each model.
        for _, model, cell in sorted(order, key=lambda entry: entry[0]):
            self._measure(cell, model, found[model.name], checked[model.name])
        _say(f"{time.monotonic() - self._begin:.0f} s in all; rows are in {options.out}")
        return EXIT_FAILURE if self._recorder.has_failures else 0

    def _cells_of(self, model: Model) -> list[Cell]:
        return cells(
            self._options.suites, self._size, task=model.task, num_clients=self._options.clients
        )

    def _planned(self, cells: Sequence[Cell], model: Model) -> list[Cell]:
        """Those that will be measured, if time is left."""
        return [cell for cell in cells if self._why_never(cell, model) is None]

    def _measure(
        self,
        cell: Cell,
        model: Model,
        started: Started,
        checked: Checked,
    ) -> None:
        """Time a cell and write its rows."""
        options, ceilings = self._options, self._device.ceilings
        members = {n: m for n, m in started.members.items() if cell.way in m.ways}
        why = self._why_left_out(cell, model)
        pace = Pace(
            options.seconds,
            options.rounds,
            options.requests,
            options.warm_up_s,
            pause_s=_CPU_PAUSE_S if self._device.type == "cpu" else 0.0,
        )
        outcomes: dict[str, Outcome] = {}
        if why is None:
            expected = {name: checked.expected(cell, member) for name, member in members.items()}
            outcomes = measure_cell(cell, checked.requests(cell), members, expected, pace)
        fields: dict[str, dict[str, Any]] = {}
        for name, member in members.items():
            of_row: dict[str, Any] = {"settings": member.settings, "left_out": why}
            agreement = checked.agreement(cell, member)
            of_row |= agreement.fields(model.task)
            of_row |= {} if agreement.agrees else {"different": True}
            outcome = outcomes.get(name)
            if outcome is not None and outcome.error is not None:
                of_row |= {"error": outcome.error, "log_tail": list(member.log_tail())}
            elif outcome is not None:
                of_row |= figures(cell, outcome.samples, model.cost, ceilings)
            fields[member.system] = of_row
        self._recorder.cell(cell, model, started, fields, why)
        for name, outcome in outcomes.items():
            if outcome.is_out:
                message = f"{cell}: {outcome.error}"
                self._starter.lose(started, name, members[name], message)

    def _why_left_out(self, cell: Cell, model: Model) -> str | None:
        minutes = (time.monotonic() - self._begin) / 60
        most = self._options.max_minutes
        if most is not None and minutes > most:
            return f"the run's {most:g} minutes were over"
        return self._why_never(cell, model)

    def _why_never(self, cell: Cell, model: Model) -> str | None:
        options = self._options
        if cell.tokens > model.max_tokens:
            return f"the model takes {model.max_tokens} tokens"
        least = least_pass_s(cell, model.cost, self._device.ceilings)
        if options.longest_pass_s is not None and least > options.longest_pass_s:
            return f"one request of each client takes {least:.1f} s at the ceilings"
        return None


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
