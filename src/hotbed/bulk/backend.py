"""What a job computes with: a model in this process, or a running Hotbed."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hotbed.bulk.block import Problem
from hotbed.bulk.policies import Counts, Policies
from hotbed.bulk.read import Window


@dataclass(frozen=True, slots=True)
class Done:
    """A window's output.

    Attributes:
        window: that it is of.
        table: record batch of the input columns, R rows.
        spans: int64 [R, 3], see `Prepared`; None without chunks.
        rows: [R, row width].
        problems: of all rows that are not embedded as they are.
        counts: what became of the window's rows.
    """

    window: Window
    table: Any
    spans: NDArray[np.int64] | None
    rows: NDArray[Any]
    problems: list[Problem]
    counts: Counts


class Backend(Protocol):
    """Computes windows in order."""

    row_width: int
    """Elements of a row."""
    row_dtype: np.dtype[Any]

    def run(
        self, windows: Iterator[Window], policies: Policies, *, text: str, dedupe: bool
    ) -> Generator[Done, None, None]:
        """Output of the windows, in order.

        Raises:
            HotbedError: naming the row that a policy says to fail on, or what else went wrong.
        """
        ...

    def idle_s(self) -> float | None:
        """Seconds in which the device had nothing to do; None: not known."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...
