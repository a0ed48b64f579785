"""`hotbed bench`: starts all systems with all models, checks them, times them, writes rows."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from hotbed.bench import rows
from hotbed.bench.cells import Cell, Size, cells, check_tokens
from hotbed.bench.check import Agreement, compare, requests_of
from hotbed.bench.inputs import Inputs, Text
from hotbed.bench.measure import Pace, figures, least_pass_s, measure_cell
from hotbed.bench.members import Member
from hotbed.bench.options import BenchOptions
from hotbed.bench.process import SystemFailedError
from hotbed.bench.record import Recorder
from hotbed.bench.start import Started, Starter
from hotbed.bench.subjects import Device, Model, prepare
from hotbed.bench.texts import corpus
from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.exit_codes import EXIT_FAILURE

_BASELINE = "hotbed offline"
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
            for cell in plan[model.name]:
                inputs[model.name].of_cell(cell)
        self._starter.wait()
        for model in models:
            self._recorder.absent(model, found[model.name])
            for name, lost in found[model.name].lost.items():
                self._recorder.lost(model, found[model.name], name, lost)
        agreements = {m.name: self._check(m, found[m.name], inputs[m.name]) for m in models}
        order = [(i, m, c) for m in models for i, c in enumerate(plan[m.name])]
        # The first cells of all models, then the second ones: a run that ends early has some of
        # each model.
        for _, model, cell in sorted(order, key=lambda entry: entry[0]):
            requests = inputs[model.name].of_cell(cell)
            self._measure(cell, requests, model, found[model.name], agreements[model.name])
        _say(f"{time.monotonic() - self._begin:.0f} s in all; rows are in {options.out}")
        return EXIT_FAILURE if self._recorder.has_failures else 0

    def _cells_of(self, model: Model) -> list[Cell]:
        return [
            cell
            for cell in cells(
                self._options.suites,
                self._size,
                task=model.task,
                num_clients=self._options.clients,
            )
            if cell.tokens <= model.max_tokens
        ]

    def _check(self, model: Model, started: Started, inputs: Inputs) -> dict[str, Agreement]:
        """Rows of all systems on the same texts, compared; the reference is ended then.

        Raises:
            HotbedError: INTERNAL if they differ, or Hotbed itself did not start.
        """
        requests, lengths = self._check_requests(model, inputs)
        found: dict[str, Any] = {}
        for name, member in list(started.members.items()):
            for way in sorted(member.ways):
                try:
                    found[_key(member, way)] = member.rows(way, requests)
                except SystemFailedError as error:
                    self._lose(model, started, name, member, f"check: {error}")
                    break
        reference = None
        if started.reference is not None:
            try:
                reference = started.reference.rows("offline", requests[: len(lengths)])
            except SystemFailedError as error:
                self._lose(model, started, "reference", started.reference, f"check: {error}")
            else:
                self._starter.drop(started.reference)
            started.reference = None
        if _BASELINE not in found:
            why = started.lost[_BASELINE].message
            raise HotbedError(
                ErrorCode.INTERNAL,
                f"{model.name}: {_BASELINE} failed, nothing was timed: {why}",
            )
        try:
            agreements = compare(
                model.task,
                found,
                baseline=_BASELINE,
                reference=reference,
                lengths=lengths,
                allowed=self._options.allow_different,
            )
        except HotbedError as error:
            raise HotbedError(error.code, f"{model.name}: {error.message}") from None
        for key, agreement in agreements.items():
            words = ", ".join(f"{k} {v}" for k, v in agreement.fields(model.task).items())
            _say(f"{model.name}: {key}: {words}{'' if agreement.agrees else ', DIFFERENT'}")
        return agreements

    def _check_requests(self, model: Model, inputs: Inputs) -> tuple[list[list[Text]], list[int]]:
        """What every system is asked first, and the texts' lengths: two texts of each."""
        lengths = [n for n in check_tokens(self._size) if n <= model.max_tokens]
        texts = [text for n in lengths for text in inputs.of(n, 2)]
        return requests_of(texts), [len(text.ids) for text in texts]

    def _measure(
        self,
        cell: Cell,
        requests: list[list[Text]],
        model: Model,
        started: Started,
        agreements: dict[str, Agreement],
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
        outcomes = {} if why is not None else measure_cell(cell, requests, members, pace)
        fields: dict[str, dict[str, Any]] = {}
        for name, member in members.items():
            of_row: dict[str, Any] = {"settings": member.settings, "left_out": why}
            agreement = agreements.get(_key(member, cell.way))
            if agreement is not None:
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
        options = self._options
        minutes = (time.monotonic() - self._begin) / 60
        if options.max_minutes is not None and minutes > options.max_minutes:
            return f"the run's {options.max_minutes:g} minutes were over"
        least = least_pass_s(cell, model.cost, self._device.ceilings)
        if options.longest_pass_s is not None and least > options.longest_pass_s:
            return f"one request of each client takes {least:.1f} s at the ceilings"
        return None

    def _lose(
        self, model: Model, started: Started, name: str, member: Member, message: str
    ) -> None:
        """Take a member out, with a row that says why."""
        self._starter.lose(started, name, member, message)
        self._recorder.lost(model, started, name, started.lost[name])


def _key(member: Member, way: str) -> str:
    """Of a member in one of its ways, among the rows that are compared."""
    return f"{member.system} {way}"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
