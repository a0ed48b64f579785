"""The contract between whoever batches (Tulip, the Embedder) and whoever computes (ROSE, fakes)."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hotbed.core.model_info import ModelInfo
from hotbed.core.output import OutputSegment
from hotbed.core.ragged import Int32Array, RaggedBatch
from hotbed.core.rows import RowSet


class EngineDeadError(Exception):
    """The device or the engine is gone for good: no later step can succeed in this process."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a step's error is Python's or torch's out of memory.

    torch's is known by its class's name, so that torch need not be imported.
    """
    return any(c.__name__ in ("MemoryError", "OutOfMemoryError") for c in type(error).__mro__)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step computed.

    Attributes:
        rows: one C-contiguous array [rows, row width] of the spec's `row_dtype` for each segment,
            in order. The caller owns the memory.
        finite: bool [R], for each row of the batch; False where what was made of it held NaN or
            infinity before quantisation. It must never be sent.
        counts: for each segment int32 [its sequences], the rows that each of them gave; None where
            it is one each (or one a span). None in all: that holds for every segment.
    """

    rows: list[NDArray[Any]]
    finite: NDArray[np.bool_]
    counts: list[Int32Array | None] | None = None

    def row_set(self, segment: int) -> RowSet:
        """Output of one segment."""
        return RowSet(self.rows[segment], None if self.counts is None else self.counts[segment])


class PendingStep(Protocol):
    """A step that was enqueued: a LazyTensor in ROSE."""

    def ready(self) -> bool:
        """Whether `wait` would return at once."""
        ...

    def wait(self) -> StepResult:
        """Block until the step is done, with the GIL released; raises what the step raised."""
        ...

    def __await__(self) -> Generator[Any, None, StepResult]:
        """The same for asyncio; never blocks the event loop."""
        ...


class Engine(Protocol):
    """One loaded model on one device."""

    @property
    def info(self) -> ModelInfo:
        """Facts of the loaded model."""
        ...

    @property
    def default_step_tokens(self) -> int:
        """Token budget of a step that suits model and device, where no setting says otherwise."""
        ...

    @property
    def isolates_nan(self) -> bool:
        """Whether a NaN stays in its sequence. If not, a row that is not finite may be the fault
        of another sequence of its step: it is run again alone before it is blamed.
        """
        ...

    def step(self, batch: RaggedBatch, segments: Sequence[OutputSegment]) -> PendingStep:
        """Enqueue one ragged batch and return at once, without waiting for the device.

        Args:
            batch: S >= 1 sequences, each of 1 to `info.max_tokens` tokens with ids below
                `info.vocab_size`; spans only where `info.check_spans` lets them, `pair_starts` only
                where `info.token_types` is 2 (all of it already checked by the caller).
            segments: cover rows 0 to R in order and without a gap, of outputs that `info` names.
                Several of different kinds may be of the same rows, side by side; of outputs with
                counts they are rows of whole sequences that have no spans of their own.

        Raises:
            EngineDeadError: no later step can succeed. A step's own failure (out of memory, a
                fault in the model) is raised by the PendingStep instead.

        Called from one thread only. Steps run in the order of the calls.
        """
        ...

    def idle(self) -> bool:
        """Do one piece of work that would otherwise delay a later step; called while none waits.

        Returns:
            False if nothing is left to do, until the next step. True if there may be more; a piece
            that cannot be done now, because a step still runs, is left for the next call.

        Called from the thread that calls `step`.
        """
        ...

    def counters(self) -> Mapping[str, int]:
        """Totals since the start by name, for metrics; the names never change. From any thread."""
        ...

    def close(self) -> None:
        """Finish what runs, free the device; later steps raise EngineDeadError."""
        ...
