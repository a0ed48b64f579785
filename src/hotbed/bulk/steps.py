"""Keeps the device busy with full steps of near-equal lengths, across windows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import Engine, PendingStep
from hotbed.text.split import split

STEPS_IN_FLIGHT = 2
T = TypeVar("T")


@dataclass(slots=True)
class _Open(Generic[T]):
    """A window whose rows are being computed."""

    item: T
    batch: RaggedBatch
    rows: NDArray[Any]
    finite: NDArray[np.bool_]
    num_missing: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_missing = len(self.finite)


class Steps:
    """Computes batches one after another; the device does not wait between them.

    Args:
        engine: the model.
        spec: what the rows shall be.
        step_tokens: token budget of a step.
    """

    def __init__(self, engine: Engine, spec: OutputSpec, step_tokens: int) -> None:
        self._engine = engine
        self._spec = spec
        self._step_tokens = step_tokens
        self._width = spec.row_width(engine.info.dimensions)
        self._in_flight: deque[tuple[_Open[Any], NDArray[np.intp], PendingStep]] = deque()
        self._idle_since = time.perf_counter()
        self.idle_s = 0.0
        """Time in which no step was with the engine."""

    def compute(
        self, items: Iterator[T], batch_of: Callable[[T], RaggedBatch]
    ) -> Iterator[tuple[T, NDArray[Any], NDArray[np.bool_]]]:
        """(item, rows [U, row width] in the spec's dtype, finite [U]) in the order of the items.

        What `items` raises is raised after the rows of the items before it.
        """
        windows: deque[_Open[T]] = deque()
        failed: Exception | None = None
        while True:
            try:
                item = next(items)
            except StopIteration:
                break
            except Exception as error:
                failed = error
                break
            batch = batch_of(item)
            window = _Open(
                item,
                batch,
                np.empty((batch.num_sequences, self._width), dtype=self._spec.dtype.numpy),
                np.ones(batch.num_sequences, dtype=np.bool_),
            )
            windows.append(window)
            # Longest first: the last step, which may not be full, is then a cheap one.
            order = np.argsort(-batch.lengths, kind="stable")
            budget = self._step_tokens
            for start, stop in split(batch.lengths[order], max_tokens=budget, max_sequences=budget):
                self._submit(window, order[start:stop])
                while len(self._in_flight) >= STEPS_IN_FLIGHT:
                    self._collect()
                while windows and not windows[0].num_missing:
                    done = windows.popleft()
                    yield done.item, done.rows, done.finite
        while self._in_flight:
            self._collect()
        for done in windows:
            yield done.item, done.rows, done.finite
        if failed is not None:
            raise failed

    def _submit(self, window: _Open[Any], rows_of: NDArray[np.intp]) -> None:
        if not self._in_flight:
            self.idle_s += time.perf_counter() - self._idle_since
        segment = OutputSegment(0, len(rows_of), self._spec)
        step = self._engine.step(window.batch.select(rows_of), (segment,))
        self._in_flight.append((window, rows_of, step))

    def _collect(self) -> None:
        window, rows_of, step = self._in_flight.popleft()
        done = step.wait()
        window.rows[rows_of] = done.rows[0]
        window.finite[rows_of] = done.finite
        window.num_missing -= len(rows_of)
        if not self._engine.isolates_nan and len(rows_of) > 1:
            for index in rows_of[~done.finite].tolist():
                # It may be the fault of another sequence of the step.
                segment = OutputSegment(0, 1, self._spec)
                alone = self._engine.step(window.batch.select([index]), (segment,)).wait()
                window.rows[index] = alone.rows[0][0]
                window.finite[index] = alone.finite[0]
        if not self._in_flight:
            self._idle_since = time.perf_counter()
