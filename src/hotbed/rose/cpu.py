"""Steps on a CPU: one compute thread stands for the device's stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotbed.core.output import OutputSegment
from hotbed.core.ragged import Int32Array, RaggedBatch
from hotbed.core.step import StepResult
from hotbed.rose.batch import PackedBatch, pack, token_bucket
from hotbed.rose.layers.pool import pool
from hotbed.rose.outputs import Outputs, TokenView
from hotbed.rose.recipe import AnyRecipe
from hotbed.rose.registry import Model

# Token counts whose kernels are built at start, so that the first real texts do not wait for them.
_WARM_UP_TOKENS = sorted({token_bucket(n) for n in range(1, 513)})


class CpuRunner:
    """Runs one step after another, in the order of the calls.

    Args:
        build: makes the model; called on the compute thread, so that this thread alone has a team
            of OpenMP threads. A second team, even an idle one, is more threads than cores: libgomp
            then hardly spins, and a text of 16 tokens takes 8.6 ms instead of 3.7 (2026-11-30).
        recipe: of its rows.
        build_outputs: makes the heads of other outputs, on the same thread; None: there are none.
        max_tokens: longest sequence.
        num_threads: of one step; None takes torch's default.
        pair_offset: of the model's positions, see `hotbed.rose.batch`.
        one_by_one: each sequence is computed as if it were alone, so that its row's bits are too:
            oneDNN chooses its kernels by the number of rows.
    """

    # More tokens a step gain nothing (MiniLM, 2 threads, 2026-11-30) and cost latency.
    default_step_tokens = 2048

    def __init__(
        self,
        build: Callable[[], Model],
        recipe: AnyRecipe,
        *,
        max_tokens: int,
        num_threads: int | None,
        pair_offset: int = 0,
        build_outputs: Callable[[], Outputs] | None = None,
        one_by_one: bool = False,
    ) -> None:
        self._one_by_one = one_by_one
        self._recipe = recipe
        self._pair_offset = pair_offset
        self._max_tokens = max_tokens
        # Thread counts are per thread in torch's OpenMP pools: set where the work runs.
        self._compute = ThreadPoolExecutor(
            1,
            thread_name_prefix="rose-compute",
            initializer=torch.set_num_threads,
            initargs=(num_threads or torch.get_num_threads(),),
        )
        try:
            self._model = self._compute.submit(build).result()
            self._outputs: Outputs | None = None
            if build_outputs is not None:
                self._outputs = self._compute.submit(build_outputs).result()
        except BaseException:
            self._compute.shutdown(wait=False)
            raise

    def submit(self, batch: RaggedBatch, segments: Sequence[OutputSegment]) -> Future[StepResult]:
        """Prepare the batch on the caller's thread, hand it to the compute thread."""
        parts = [batch]
        if self._one_by_one:
            parts = [batch.slice(i, i + 1) for i in range(batch.num_sequences)]
        packed = [pack(part, pair_offset=self._pair_offset) for part in parts]
        return self._compute.submit(self._run, packed, tuple(segments))

    def warm_up(self) -> None:
        """Run one step of each usual size."""
        for num_tokens in _WARM_UP_TOKENS:
            whole, rest = divmod(num_tokens, self._max_tokens)
            lengths = np.array([self._max_tokens] * whole + [rest] * (rest > 0), dtype=np.int32)
            ids = np.zeros(num_tokens, dtype=np.int32)
            self.submit(RaggedBatch.from_lengths(ids, lengths), ()).result()

    def idle(self) -> bool:
        """Nothing is left for later on a CPU."""
        return False

    def close(self) -> None:
        """Finish the steps that were taken, stop the compute thread."""
        self._compute.shutdown(wait=True)

    def _run(self, parts: list[PackedBatch], segments: tuple[OutputSegment, ...]) -> StepResult:
        with torch.inference_mode():
            if self._one_by_one:
                return self._each_alone(parts, segments)
            (batch,) = parts
            states = self._model.forward(batch)
            if all(segment.spec.kind == "dense" for segment in segments):
                return self._pooled(states, batch, segments)
            return self._mixed(states, batch, segments)

    def _each_alone(
        self, parts: list[PackedBatch], segments: tuple[OutputSegment, ...]
    ) -> StepResult:
        """Dense rows, of every sequence and of every row by itself."""
        computed = [
            self._recipe.of_pooled(self._in_order(self._model.forward(part), part))
            for part in parts
        ]
        rows, finite = (torch.cat(tensors) for tensors in zip(*computed, strict=True))
        finished = [
            torch.cat(
                [
                    self._recipe.finish(row[None], (OutputSegment(0, 1, segment.spec),))[0]
                    for row in rows[segment.start : segment.stop]
                ]
            ).numpy()
            for segment in segments
        ]
        return StepResult(finished, finite.numpy())

    def _in_order(self, states: Tensor, batch: PackedBatch) -> Tensor:
        """Pooled rows in the caller's order."""
        rows = pool(states, batch, self._recipe.pooling)
        return rows if len(batch.restore) == 1 else rows[torch.from_numpy(batch.restore)]

    def _pooled(
        self, states: Tensor, batch: PackedBatch, segments: tuple[OutputSegment, ...]
    ) -> StepResult:
        rows, finite = self._recipe.of_pooled(self._in_order(states, batch))
        finished = [tensor.numpy() for tensor in self._recipe.finish(rows, segments)]
        return StepResult(finished, finite.numpy())

    def _mixed(
        self, states: Tensor, batch: PackedBatch, segments: tuple[OutputSegment, ...]
    ) -> StepResult:
        """Outputs of other kinds, beside dense rows or without any."""
        outputs = self._outputs
        assert outputs is not None, "the engine has checked that there are such outputs: a bug"
        dense = tuple(segment for segment in segments if segment.spec.kind == "dense")
        pooled = self._pooled(states, batch, dense) if dense else None
        finite = np.ones(len(batch.places), np.bool_) if pooled is None else pooled.finite
        dense_rows = iter(() if pooled is None else pooled.rows)
        rows: list[NDArray[Any]] = []
        counts: list[Int32Array | None] = []
        for segment in segments:
            if segment.spec.kind == "dense":
                rows.append(next(dense_rows))
                counts.append(None)
                continue
            view = _view(states, batch, batch.places[segment.start : segment.stop])
            made = outputs.make(view, segment.spec)
            found, is_finite = made.collect(made.values.numpy(), made.finite.numpy())
            finite[segment.start : segment.stop] &= is_finite
            rows.append(found.rows)
            counts.append(found.counts)
        return StepResult(rows, finite, counts)


def _view(states: Tensor, batch: PackedBatch, places: NDArray[np.int64]) -> TokenView:
    """The tokens of the sequences at these places, in this order."""
    cu = batch.cu_seqlens.numpy()
    lengths = cu[places + 1] - cu[places]
    offsets = np.zeros(len(places) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    tokens = np.arange(offsets[-1]) + np.repeat(cu[places] - offsets[:-1], lengths)
    return TokenView(
        states[torch.from_numpy(tokens)],
        torch.from_numpy(offsets),
        lengths,
        batch.token_ids.numpy()[tokens],
    )
