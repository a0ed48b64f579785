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
from hotbed.bench.measure import Outcome, Pace, figures, least_pass_s, measure_cell
from hotbed.bench.members import Member
from hotbed.bench.options import BenchOptions
from hotbed.bench.process import SystemFailedError
from hotbed.bench.start import NOT_INSTALLED, Started, Starter
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
        self._failed = False

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
            self._write_missing(model, found[model.name])
        agreements = {m.name: self._check(m, found[m.name], inputs[m.name]) for m in models}
        order = [(i, m, c) for m in models for i, c in enumerate(plan[m.name])]
        # The first cells of all models, then the second ones: a run that ends early has some of
        # each model.
        for _, model, cell in sorted(order, key=lambda entry: entry[0]):
            requests = inputs[model.name].of_cell(cell)
            self._measure(cell, requests, model, found[model.name], agreements[model.name])
        _say(f"{time.monotonic() - self._begin:.0f} s in all; rows are in {options.out}")
        return EXIT_FAILURE if self._failed else 0

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
        if _BASELINE not in started.members:
            raise HotbedError(
                ErrorCode.INTERNAL,
                f"{model.name}: {_BASELINE} did not start; nothing was timed. "
                + "; ".join(f"{name}: {message}" for name, message, _ in started.failed),
            )
        lengths = [n for n in check_tokens(self._size) if n <= model.max_tokens for _ in range(2)]
        texts = [text for n in dict.fromkeys(lengths) for text in inputs.of(n, 2)]
        requests = requests_of(texts)
        found: dict[str, Any] = {}
        for name, member in list(started.members.items()):
            for way in sorted(member.ways):
                key = name if way == "offline" else f"{member.system} {way}"
                try:
                    found[key] = member.rows(way, requests)
                except SystemFailedError as error:
                    self._fail(model, started, name, f"check: {error}")
                    break
        reference = None
        if started.reference is not None:
            try:
                reference = started.reference.rows("offline", requests[: len(texts)])
            except SystemFailedError as error:
                tail = started.reference.log_tail()
                self._write_failure(model, started, "reference", f"check: {error}", tail=tail)
            self._starter.drop(started.reference)
            started.reference = None
        if _BASELINE not in found:
            raise HotbedError(
                ErrorCode.INTERNAL, f"{model.name}: {_BASELINE} failed; nothing was timed"
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
            figures_of = ", ".join(f"{k} {v}" for k, v in agreement.fields(model.task).items())
            _say(f"{model.name}: {key}: {figures_of}{'' if agreement.agrees else ', DIFFERENT'}")
        return agreements

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
        if not members:
            return
        why = None
        least = least_pass_s(cell, model.cost, ceilings)
        minutes = (time.monotonic() - self._begin) / 60
        if options.max_minutes is not None and minutes > options.max_minutes:
            why = f"the run's {options.max_minutes:g} minutes were over"
        elif options.longest_pass_s is not None and least > options.longest_pass_s:
            why = f"one request of each client takes {least:.1f} s at the ceilings"
        pace = Pace(
            options.seconds,
            options.rounds,
            options.requests,
            options.warm_up_s,
            pause_s=_CPU_PAUSE_S if self._device.type == "cpu" else 0.0,
        )
        outcomes = {} if why is not None else measure_cell(cell, requests, members, pace)
        made = []
        for name, member in members.items():
            key = name if cell.way == "offline" else f"{member.system} {cell.way}"
            fields: dict[str, Any] = {"settings": member.settings}
            if key in agreements:
                fields |= agreements[key].fields(model.task)
                fields |= {} if agreements[key].agrees else {"different": True}
            if why is not None:
                fields["left_out"] = why
            else:
                outcome = outcomes[name]
                if outcome.error is None:
                    fields |= figures(cell, outcome.samples, model.cost, ceilings)
                else:
                    fields |= self._error_fields(outcome, member)
            made.append(self._row(cell, member.system, model, started, **fields))
            if name in outcomes and outcomes[name].is_out:
                self._starter.drop(started.members.pop(name))
        rows.append(options.out, made)
        _say(f"{model.name}: {cell}: " + (why or "; ".join(map(_brief, made))))

    def _error_fields(self, outcome: Outcome, member: Member) -> dict[str, Any]:
        self._failed = True
        return {"error": outcome.error, "log_tail": list(member.log_tail())}

    def _write_missing(self, model: Model, started: Started) -> None:
        """A row for each system that is not there, and for each that could not be started."""
        for system, why in started.absent.items():
            row = self._row(None, system, model, started, absent=why)
            rows.append(self._options.out, [row])
            if why == NOT_INSTALLED:
                _say(f"{model.name}: {system} is {why}")
        for name, message, tail in started.failed:
            self._write_failure(model, started, name, f"start: {message}", tail=tail)

    def _fail(self, model: Model, started: Started, name: str, message: str) -> None:
        """Take a member out."""
        member = started.members.pop(name)
        self._write_failure(model, started, name, message, tail=member.log_tail())
        self._starter.drop(member)

    def _write_failure(
        self, model: Model, started: Started, name: str, message: str, *, tail: tuple[str, ...]
    ) -> None:
        self._failed = True
        system, _, way = name.partition(" ")
        fields = {"way": way or None, "error": message, "log_tail": list(tail)}
        rows.append(self._options.out, [self._row(None, system, model, started, **fields)])
        _say(f"{model.name}: {name} FAILED: {message}")

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
                "size": self._size,
                "random_weights": model.random_weights,
                "dtype": self._device.dtype,
                "device": self._device.name,
                "driver": self._device.driver,
                "torch": self._device.torch,
                "commit": self._options.commit,
            },
        )


def _brief(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['system']} FAILED: {row['error']}"
    rate = row["suite"] == "throughput"
    return f"{row['system']} " + (
        f"{row['seq_per_s']:,.1f}/s" if rate else f"p50 {row['p50_ms']:.2f} ms"
    )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
