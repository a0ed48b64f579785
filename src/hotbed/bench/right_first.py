"""Asks every system for the rows of the check, before anything is timed, and Hotbed for the rows
that those of the timed requests are held to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hotbed.bench.cells import Cell, Size, check_tokens
from hotbed.bench.check import Agreement, compare, requests_of
from hotbed.bench.expected import Expected, Rows
from hotbed.bench.inputs import Inputs, Text
from hotbed.bench.members import Member
from hotbed.bench.options import BenchOptions
from hotbed.bench.process import SystemFailedError
from hotbed.bench.record import Recorder
from hotbed.bench.start import Started, Starter
from hotbed.bench.subjects import Model
from hotbed.core.errors import ErrorCode, HotbedError

_BASELINE = "hotbed offline"
_RequestsKey = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Checked:
    """What the check found for one model.

    Attributes:
        task: of the model.
        agreements: with Hotbed, by system and way.
        wanted: a cell's requests and Hotbed's rows of them.
    """

    task: str
    agreements: dict[str, Agreement]
    wanted: dict[_RequestsKey, tuple[list[list[Text]], Rows]]

    def agreement(self, cell: Cell, member: Member) -> Agreement:
        """The member's, asked as in the cell."""
        return self.agreements[_key(member, cell.way)]

    def requests(self, cell: Cell) -> list[list[Text]]:
        """The cell's."""
        return self.wanted[_requests_key(cell)][0]

    def expected(self, cell: Cell, member: Member) -> Expected:
        """Rows of the cell's requests; for a member that may differ, their shape alone counts."""
        requests, rows = self.wanted[_requests_key(cell)]
        is_near = self.agreement(cell, member).agrees
        return Expected.of(self.task, rows, [len(some) for some in requests], is_near=is_near)


class RightFirst:
    """Does the check.

    Args:
        options: of the run.
        size: of the suites.
        starter: owns the members.
        recorder: takes those that fail.
        say: takes a line for the user.
    """

    def __init__(
        self,
        options: BenchOptions,
        size: Size,
        starter: Starter,
        recorder: Recorder,
        say: Callable[[str], None],
    ) -> None:
        self._options = options
        self._size = size
        self._starter = starter
        self._recorder = recorder
        self._say = say

    def check(
        self, model: Model, started: Started, inputs: Inputs, planned: Sequence[Cell]
    ) -> Checked:
        """Compare all systems' rows of the same texts; the reference is ended then.

        Args:
            model: of the systems.
            started: the systems.
            inputs: makes the texts.
            planned: cells whose rows will be needed.

        Raises:
            HotbedError: INTERNAL if rows differ, or Hotbed itself failed.
        """
        lengths = [n for n in check_tokens(self._size) if n <= model.max_tokens]
        texts = [text for n in lengths for text in inputs.of(n, 2)]
        requests = requests_of(texts)
        found: dict[str, Rows] = {}
        for name, member in list(started.members.items()):
            for way in sorted(member.ways):
                try:
                    found[_key(member, way)] = member.rows(way, requests)
                except SystemFailedError as error:
                    self._lose(model, started, name, member, error)
                    break
        reference = self._reference(model, started, requests[: len(texts)])
        if _BASELINE not in found:
            raise self._failed(model, started.lost[_BASELINE].message)
        try:
            agreements = compare(
                model.task,
                found,
                baseline=_BASELINE,
                reference=reference,
                lengths=[len(text.ids) for text in texts],
                allowed=self._options.allow_different,
            )
        except HotbedError as error:
            raise HotbedError(error.code, f"{model.name}: {error.message}") from None
        for key, agreement in agreements.items():
            words = ", ".join(f"{k} {v}" for k, v in agreement.fields(model.task).items())
            self._say(f"{model.name}: {key}: {words}{'' if agreement.agrees else ', DIFFERENT'}")
        return Checked(model.task, agreements, self._wanted(model, started, inputs, planned))

    def _reference(self, model: Model, started: Started, requests: list[list[Text]]) -> Rows | None:
        member, started.reference = started.reference, None
        if member is None:
            return None
        try:
            rows = member.rows("offline", requests)
        except SystemFailedError as error:
            self._lose(model, started, "reference", member, error)
            return None
        self._starter.drop(member)
        return rows

    def _wanted(
        self, model: Model, started: Started, inputs: Inputs, planned: Sequence[Cell]
    ) -> dict[_RequestsKey, tuple[list[list[Text]], Rows]]:
        found: dict[_RequestsKey, tuple[list[list[Text]], Rows]] = {}
        for cell in planned:
            key = _requests_key(cell)
            if key in found:
                continue
            requests = inputs.of_cell(cell)
            try:
                rows = started.members[_BASELINE].rows("offline", requests)
            except SystemFailedError as error:
                raise self._failed(model, f"{cell}: {error}") from error
            if not np.isfinite(rows).all():
                raise self._failed(model, f"{cell}: a row is not finite")
            found[key] = requests, rows
        return found

    def _lose(
        self, model: Model, started: Started, name: str, member: Member, error: SystemFailedError
    ) -> None:
        """Take a member out, with a row that says why."""
        self._starter.lose(started, name, member, f"check: {error}")
        self._recorder.lost(model, started, name, started.lost[name])

    @staticmethod
    def _failed(model: Model, why: str) -> HotbedError:
        message = f"{model.name}: {_BASELINE} failed, nothing was timed: {why}"
        return HotbedError(ErrorCode.INTERNAL, message)


def _requests_key(cell: Cell) -> _RequestsKey:
    """Cells with the same one have the same requests."""
    return cell.suite, cell.n, cell.tokens


def _key(member: Member, way: str) -> str:
    """Of a member in one of its ways, among the rows that are compared."""
    return f"{member.system} {way}"
