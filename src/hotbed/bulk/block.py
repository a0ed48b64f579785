"""What readers give: some consecutive rows of the inputs, as Arrow, and what is wrong with others.

Row numbers count over all inputs of a job in their order. In line formats each line has a number,
blank ones too, so that a number leads back to its line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

ProblemKind = Literal["empty", "broken", "too_long", "not_finite"]
Action = Literal["skipped", "truncated", "chunked"]


class Problem(msgspec.Struct, frozen=True):
    """One row that was not embedded as it is; a line of the report. Holds no text of the row.

    Attributes:
        row: its number over all inputs, from 0.
        problem: what is wrong.
        action: what was done.
        detail: more words, such as the number of tokens.
        source: the input that it is from.
        line: its number there, from 1: the line, or the record where records are not lines.
    """

    row: int
    problem: ProblemKind
    action: Action
    detail: str
    source: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """Rows `first_row` to `first_row + num_rows` of the inputs.

    Attributes:
        first_row: number of the first.
        num_rows: numbers covered; some of them may be blank lines, with neither row nor problem.
        table: Arrow record batch of the good rows.
        good: int64 [rows of `table`], their places in the block, rising.
        sizes: int64 [num_rows], bytes of the row, roughly; 0 where there is no good row.
        problems: of the bad rows, in order.
    """

    first_row: int
    num_rows: int
    table: Any
    good: NDArray[np.int64]
    sizes: NDArray[np.int64]
    problems: list[Problem]

    def slice(self, start: int, stop: int) -> Block:
        """Rows at places start to stop (exclusive) of the block; no copy."""
        first, last = np.searchsorted(self.good, (start, stop))
        rows = range(self.first_row + start, self.first_row + stop)
        return Block(
            first_row=rows.start,
            num_rows=stop - start,
            table=self.table.slice(first, last - first),
            good=self.good[first:last] - start,
            sizes=self.sizes[start:stop],
            problems=[p for p in self.problems if p.row in rows],
        )
