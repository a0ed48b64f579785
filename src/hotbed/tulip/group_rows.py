"""What a step gave, handed out part by part."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from hotbed.core.output import OutputSpec
from hotbed.core.rows import RowSet
from hotbed.core.step import StepResult


class GroupRows:
    """What a step gave for the parts of one recipe.

    Args:
        result: of the step.
        segment: the group's first.
        spec: its recipe.
    """

    __slots__ = ("_rows", "_sets", "num_segments")

    def __init__(self, result: StepResult, segment: int, spec: OutputSpec) -> None:
        self._rows: NDArray[Any] | None = None
        if spec.is_plain:
            self.num_segments = 1
            self._rows = result.rows[segment]
            return
        self.num_segments = len(spec.each())
        self._sets = [result.row_set(segment + i) for i in range(self.num_segments)]

    def cut(self, start: int, stop: int) -> NDArray[Any] | list[RowSet]:
        """Of the group's rows start to stop (exclusive), in the form that `Item.store` takes."""
        if self._rows is not None:
            return self._rows[start:stop]
        return [one.slice(start, stop) for one in self._sets]
