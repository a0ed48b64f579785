"""What rows must be, also those that were timed: a fast wrong answer is no answer.

Runs in the processes of the systems too, under their interpreters: numpy and nothing else.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MIN_COSINE = 0.999
MAX_SCORE_DIFFERENCE = 0.02
"""Of two scores between 0 and 1: 0.08 of a logit where the curve is steepest, a few roundings of
BF16 in the last state."""
_TIMED_ROOM = 2.0
"""Times the limits above for rows that were timed: they are hundreds, not a dozen, and the largest
of more deviations is larger."""

Rows = NDArray[np.float32]


def least_nearness(task: str) -> float:
    """The limit for `nearness` in the check before anything is timed."""
    return 1 - MAX_SCORE_DIFFERENCE if task == "score" else MIN_COSINE


def nearness(task: str, a: Rows, b: Rows) -> NDArray[np.float64]:
    """[rows] of cosines, or for scores of 1 - the largest difference; 1 is equal."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    if task == "score":
        scores: NDArray[np.float64] = 1 - np.abs(x - y).max(axis=1)
        return scores
    lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    cosines: NDArray[np.float64] = (x * y).sum(1) / np.maximum(lengths, 1e-30)
    return cosines


def measure_of(task: str) -> str:
    """What `nearness` is, in words."""
    return "1 - difference of scores" if task == "score" else "cosine"


@dataclass(frozen=True, slots=True)
class Expected:
    """Rows of a cell's requests, as Hotbed in its own process gave them untimed.

    Attributes:
        task: ``embed`` or ``score``.
        rows: float32 [texts, width], of each request.
        is_near: whether the system's rows agreed with Hotbed's; else only their shape is checked,
            and that they are finite.
    """

    task: str
    rows: tuple[Rows, ...]
    is_near: bool = True

    @classmethod
    def of(cls, task: str, rows: Rows, sizes: Sequence[int], *, is_near: bool = True) -> Expected:
        """From the rows of all requests, one below the other; `sizes` are texts of each."""
        parts = np.split(rows, np.cumsum(sizes)[:-1])
        return cls(task, tuple(parts), is_near)

    def as_json(self) -> dict[str, Any]:
        """For a message."""
        rows = [[part.shape, base64.b64encode(part.tobytes()).decode()] for part in self.rows]
        return {"task": self.task, "rows": rows, "is_near": self.is_near}

    @classmethod
    def from_json(cls, message: Mapping[str, Any]) -> Expected:
        """Of what `as_json` made."""
        rows = (
            np.frombuffer(base64.b64decode(data), np.float32).reshape(shape)
            for shape, data in message["rows"]
        )
        return cls(message["task"], tuple(rows), message["is_near"])

    def check(self, answers: Iterable[tuple[int, NDArray[Any]]]) -> None:
        """Hold answers, each with the number of its request, to the expected rows.

        Raises:
            ValueError: how many are wrong, and what is wrong with the first.
        """
        count, faults = 0, []
        for number, rows in answers:
            count += 1
            index = number % len(self.rows)
            fault = self._fault(index, np.asarray(rows, dtype=np.float32))
            if fault is not None:
                faults.append(fault)
        if faults:
            raise ValueError(f"{len(faults)} of {count} timed answers are wrong; {faults[0]}")

    def _fault(self, index: int, rows: Rows) -> str | None:
        wanted = self.rows[index]
        if rows.shape != wanted.shape:
            return f"rows of shape {list(rows.shape)} came back, {list(wanted.shape)} are right"
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            return f"row {int(finite.argmin())} of {len(rows)} is not finite"
        if not self.is_near:
            return None
        near = nearness(self.task, rows, wanted)
        least = 1 - _TIMED_ROOM * (1 - least_nearness(self.task))
        if (near >= least).all():
            return None
        worst = int(near.argmin())
        return (
            f"row {worst} of {len(rows)}: {measure_of(self.task)} {near[worst]:.6f} to the right"
            f" one{self._owner(rows[worst], least)}"
        )

    def _owner(self, row: Rows, least: float) -> str:
        """Whose row it is instead, where that can be said; scores of two texts may be equal."""
        if self.task == "score":
            return ""
        for other, rows in enumerate(self.rows):
            near = nearness(self.task, np.broadcast_to(row, rows.shape), rows)
            if near.max() >= least:
                return f": it is row {int(near.argmax())} of request {other}"
        return ""
