"""Work in this process, a window of inputs at a time: tokenised ahead, sorted, two steps in flight.

A window is enough for full steps of near-equal lengths, and a bound on what lies in memory besides
the result.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from hotbed.core.errors import ErrorCode, HotbedError, shift_input_index
from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.engine import RoseEngine
from hotbed.rose.lazy_tensor import LazyTensor
from hotbed.text.split import split

WINDOW_INPUTS = 4096
_STEPS_IN_FLIGHT = 2
_PROGRESS_FROM_INPUTS = 1000

Encode = Callable[[int, int], RaggedBatch]
"""(first input, last + 1) to their sequences."""


def compute(
    engine: RoseEngine,
    num_inputs: int,
    encode: Encode,
    spec: OutputSpec,
    *,
    what: str,
    show_progress: bool | None,
) -> NDArray[Any]:
    """Rows of all inputs, [inputs, row width] of the spec's dtype, in order.

    Args:
        engine: of the model.
        num_inputs: of them all.
        encode: tokenises a window; called on another thread while the one before computes.
        spec: what the rows shall be.
        what: says beside the bar what is going on.
        show_progress: a bar on stderr; None: on a terminal from 1,000 inputs on.

    Raises:
        HotbedError: what `encode` raises; INTERNAL with ``input[i]`` for a row that is not finite.
    """
    width = spec.row_width(engine.info.dimensions)
    result = np.empty((num_inputs, width), dtype=spec.dtype.numpy)
    if show_progress is None:
        show_progress = num_inputs >= _PROGRESS_FROM_INPUTS and sys.stderr.isatty()
    with _progress(what, num_inputs, shown=show_progress) as advance:
        for start, batch in _tokenized(num_inputs, encode):
            rows = result[start : start + batch.num_sequences]
            try:
                compute_batch(engine, batch, spec, into=rows, advance=advance)
            except HotbedError as error:
                raise shift_input_index(error, start) from None
    return result


def _tokenized(num_inputs: int, encode: Encode) -> Iterator[tuple[int, RaggedBatch]]:
    """(index of its first input, batch) a window; the next is tokenised while one computes."""
    if num_inputs <= WINDOW_INPUTS:  # nothing to overlap with
        if num_inputs:
            yield 0, encode(0, num_inputs)
        return

    def window(start: int) -> RaggedBatch:
        return encode(start, min(start + WINDOW_INPUTS, num_inputs))

    with ThreadPoolExecutor(1, thread_name_prefix="tokenize") as pool:
        ahead = pool.submit(window, 0)
        for start in range(0, num_inputs, WINDOW_INPUTS):
            batch = ahead.result()
            if start + WINDOW_INPUTS < num_inputs:
                ahead = pool.submit(window, start + WINDOW_INPUTS)
            yield start, batch


def compute_batch(
    engine: RoseEngine,
    batch: RaggedBatch,
    spec: OutputSpec,
    *,
    into: NDArray[Any],
    advance: Callable[[int], None] = lambda num_inputs: None,
) -> None:
    """Compute the batch's rows, longest sequences first.

    Raises:
        HotbedError: INTERNAL with ``input[i]`` for a sequence with a row that is not finite.
    """
    order = np.argsort(-batch.lengths, kind="stable")
    budget = engine.default_step_tokens
    chunks = split(batch.lengths[order], max_tokens=budget, max_sequences=budget)
    in_flight: deque[tuple[NDArray[np.intp], LazyTensor]] = deque()

    def collect() -> None:
        indexes, pending = in_flight.popleft()
        done = pending.wait()
        rows_of = _rows_of(batch, indexes)
        into[rows_of] = done.rows[0]
        for row in rows_of[~done.finite].tolist():
            index = batch.sequence_of(row)
            if len(indexes) > 1 and not engine.isolates_nan:
                # It may be the fault of another sequence of the step.
                step = batch.select([index])
                alone = engine.step(step, (OutputSegment(0, step.num_rows, spec),)).wait()
                into[slice(*batch.rows_of(index, index + 1))] = alone.rows[0]
                if alone.finite.all():
                    continue
            raise HotbedError(
                ErrorCode.INTERNAL,
                "the model gave a row that is not finite",
                param=f"input[{index}]",
            )
        advance(len(indexes))

    for start, stop in chunks:
        indexes = order[start:stop]
        step = batch.select(indexes)
        segment = OutputSegment(0, step.num_rows, spec)
        in_flight.append((indexes, engine.step(step, (segment,))))
        if len(in_flight) == _STEPS_IN_FLIGHT:
            collect()
    while in_flight:
        collect()


def _rows_of(batch: RaggedBatch, indexes: NDArray[np.intp]) -> NDArray[np.intp]:
    """The rows that the sequences of these indexes give, in this order."""
    if batch.spans is None:
        return indexes
    return np.concatenate([np.arange(*batch.rows_of(int(i), int(i) + 1)) for i in indexes])


@contextmanager
def _progress(what: str, total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yields a function that advances the bar by a number of inputs."""
    if not shown:
        yield lambda num_inputs: None
        return
    columns = ("[progress.description]{task.description}", BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=total)
        yield lambda num_inputs: progress.advance(task, num_inputs)
