"""Keeps the device busy with full steps of near-equal lengths, across windows."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import Engine, EngineDeadError, PendingStep, StepResult
from hotbed.text.split import split

_LOG = logging.getLogger("hotbed.bulk")
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


class SequenceError(Exception):
    """A step of one sequence alone failed, of which the cause tells.

    Attributes:
        item: that it is of.
        index: of the sequence in the item's batch.
        num_tokens: of the sequence.
    """

    def __init__(self, item: Any, index: int, num_tokens: int) -> None:
        super().__init__(f"sequence {index} of {num_tokens} tokens")
        self.item, self.index, self.num_tokens = item, index, num_tokens


class Steps:
    """Computes batches one after another; the device does not wait between them.

    A step that fails, for lack of memory most often, is run again with nothing beside it, then in
    halves, down to the sequence at fault.

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
        self.num_split = 0
        """Steps that were cut in halves."""

    def compute(
        self, items: Iterator[T], batch_of: Callable[[T], RaggedBatch]
    ) -> Iterator[tuple[T, NDArray[Any], NDArray[np.bool_]]]:
        """(item, rows [U, row width] in the spec's dtype, finite [U]) in the order of the items.

        What `items` raises is raised after the rows of the items before it.

        Raises:
            SequenceError: the engine fails on a sequence alone.
            EngineDeadError: no later step can succeed.
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
        self._in_flight.append((window, rows_of, self._step(window, rows_of)))

    def _step(self, window: _Open[Any], rows_of: NDArray[np.intp]) -> PendingStep:
        segment = OutputSegment(0, len(rows_of), self._spec)
        return self._engine.step(window.batch.select(rows_of), (segment,))

    def _collect(self) -> None:
        window, rows_of, step = self._in_flight.popleft()
        try:
            self._store(window, rows_of, step.wait())
        except EngineDeadError:
            raise
        except Exception:
            del step  # its error holds on to memory of the device
            while self._in_flight:
                self._collect()
            self._compute_alone(window, rows_of)
        if not self._in_flight:
            self._idle_since = time.perf_counter()

    def _compute_alone(self, window: _Open[Any], rows_of: NDArray[np.intp]) -> None:
        waiting = [rows_of]
        while waiting:
            rows_of = waiting.pop()
            try:
                self._store(window, rows_of, self._step(window, rows_of).wait())
            except EngineDeadError:
                raise
            except Exception as error:
                if len(rows_of) == 1:
                    index = int(rows_of[0])
                    num_tokens = int(window.batch.lengths[index])
                    raise SequenceError(window.item, index, num_tokens) from error
                if not self.num_split:  # once a job: each of its steps may fail so
                    _LOG.warning(
                        "a step of %d tokens failed (%s); such steps run in halves",
                        int(window.batch.lengths[rows_of].sum()),
                        type(error).__name__,
                    )
                self.num_split += 1
                half = len(rows_of) // 2
                waiting += [rows_of[half:], rows_of[:half]]

    def _store(self, window: _Open[Any], rows_of: NDArray[np.intp], done: StepResult) -> None:
        window.rows[rows_of] = done.rows[0]
        window.finite[rows_of] = done.finite
        window.num_missing -= len(rows_of)
        if self._engine.isolates_nan or len(rows_of) == 1:
            return
        for index in rows_of[~done.finite]:
            # It may be the fault of another sequence of the step.
            alone = self._step(window, np.array([index])).wait()
            window.rows[index] = alone.rows[0][0]
            window.finite[index] = alone.finite[0]
