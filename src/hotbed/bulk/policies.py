"""What becomes of rows that cannot be embedded as they are: the policies of a job."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from hotbed.bulk.block import Action, Problem, ProblemKind
from hotbed.bulk.options import Bad, TooLong
from hotbed.core.errors import ErrorCode, HotbedError, invalid


@dataclass(frozen=True, slots=True)
class Policies:
    """Attributes:
    too_long: for texts over the model's limit.
    bad: for rows that are empty, broken, or give a row that is not finite.
    place: (source, number in it) of a row.
    """

    too_long: TooLong
    bad: Bad
    place: Callable[[int], tuple[str, int]]

    def bad_row(self, row: int, problem: ProblemKind, detail: str) -> Problem:
        """For the report.

        Raises:
            HotbedError: naming the row, if the policy is to fail.
        """
        return self.located(Problem(row, problem, "skipped", detail))

    def located(self, problem: Problem) -> Problem:
        """A bad row's problem with its source and line filled in; raises as `bad_row`."""
        named = self._with_place(problem)
        if self.bad == "fail":
            code = ErrorCode.INTERNAL if named.problem == "not_finite" else ErrorCode.INVALID_INPUT
            raise HotbedError(
                code,
                f"{named.source}, line {named.line}: {named.detail}. --bad skip leaves such rows "
                "out and lists them in the report; with --resume the finished parts are kept.",
            )
        return named

    def long_text(self, row: int, detail: str) -> Problem:
        """The same for a text that is too long."""
        actions: dict[TooLong, Action] = {
            "truncate": "truncated",
            "chunk": "chunked",
            "skip": "skipped",
        }
        if self.too_long == "fail":
            source, line = self.place(row)
            raise invalid(
                f"{source}, line {line}: {detail}. --too-long truncate, chunk or skip says what "
                "shall become of such texts; with --resume the finished parts are kept."
            )
        return self._with_place(Problem(row, "too_long", actions[self.too_long], detail))

    def _with_place(self, problem: Problem) -> Problem:
        source, line = self.place(problem.row)
        return msgspec.structs.replace(problem, source=source, line=line)


@dataclass(slots=True)
class Counts:
    """What became of rows; adds up.

    Attributes:
        read: rows, without blank lines.
        written: rows of the output.
        tokens: that were computed.
        empty: rows left out: no text in them.
        broken: left out: cannot be read.
        not_finite: left out: the model gave NaN or infinity.
        too_long_skipped: left out: over the model's limit.
        truncated: cut to the limit.
        chunked: of which each part became a row.
        reused: output rows whose text had been computed before (`--dedupe`).
    """

    read: int = 0
    written: int = 0
    tokens: int = 0
    empty: int = 0
    broken: int = 0
    not_finite: int = 0
    too_long_skipped: int = 0
    truncated: int = 0
    chunked: int = 0
    reused: int = 0

    def add(self, other: Counts) -> None:
        """Add another's numbers to these."""
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def add_problem(self, problem: Problem) -> None:
        """Count one row of the report."""
        name: str = problem.problem
        if problem.problem == "too_long":
            name = "too_long_skipped" if problem.action == "skipped" else problem.action
        setattr(self, name, getattr(self, name) + 1)

    @property
    def skipped(self) -> int:
        """Rows that were read and have no output."""
        return self.empty + self.broken + self.not_finite + self.too_long_skipped
