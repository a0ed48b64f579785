"""Steps on a CUDA device: one stream, static inputs, graphs, and copies nobody waits for.

`submit` is called from one thread and only enqueues:

    pinned inputs -> (one copy) -> static device inputs -> model, pooling (eager or graph)
      -> rows as each segment wants them -> (copies) -> pinned rows -> event

A second thread waits for the events in order, with the GIL released, and completes the futures.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import EngineDeadError, StepResult
from hotbed.rose.buckets import StepConfig, step_config
from hotbed.rose.buffers import InputBuffers, PinnedRing, total_bytes
from hotbed.rose.graphs import CaptureMode, GraphCache, GraphCounters
from hotbed.rose.layers.pool import PooledRows, pool_rows
from hotbed.rose.recipe import Recipe
from hotbed.rose.registry import Model


@dataclass(frozen=True, slots=True)
class CudaSettings:
    """Settings of the graphs.

    Attributes:
        capture: when graphs are captured.
        max_graph_bytes: device memory graphs may add.
        max_graphs: how many there may be.
        max_graph_tokens: larger steps run eagerly.
    """

    capture: CaptureMode = CaptureMode.LAZY
    max_graph_bytes: int = 8 * 1024**3
    max_graphs: int = 256
    max_graph_tokens: int = 16_384


class _Flying(NamedTuple):
    """A step on its way: completed when `event` is done."""

    future: Future[StepResult]
    event: torch.cuda.Event
    tensors: list[Tensor]
    """Pinned views: one a segment, then `finite`."""


class CudaRunner:
    """Runs steps on one device.

    Args:
        model: built on the device.
        recipe: of its rows.
        device: the CUDA device.
        settings: of the graphs.
        by_length: whether the attention backend wants a class of longest sequences.
    """

    # GEMMs of 4,096 to 8,192 tokens run at the highest rate (H200, 2026-11-30).
    default_step_tokens = 8192

    def __init__(
        self,
        model: Model,
        recipe: Recipe,
        *,
        device: torch.device,
        settings: CudaSettings,
        by_length: bool,
    ) -> None:
        self._model = model
        self._recipe = recipe
        self._device = device
        self._by_length = by_length
        with torch.cuda.device(device):
            self._stream = torch.cuda.Stream(device)
            self._graphs: GraphCache[PooledRows] = GraphCache(
                self._stream,
                mode=settings.capture,
                max_bytes=settings.max_graph_bytes,
                max_graphs=settings.max_graphs,
                max_tokens=settings.max_graph_tokens,
            )
        self._inputs: dict[StepConfig, InputBuffers] = {}
        self._to_device = PinnedRing()
        self._waiting: queue.SimpleQueue[_Flying | None] = queue.SimpleQueue()
        self._waiter = threading.Thread(target=self._complete, name="rose-wait", daemon=True)
        self._waiter.start()

    @property
    def counters(self) -> GraphCounters:
        """Steps that ran eagerly, were captured, replayed; graphs that were evicted."""
        return self._graphs.counters

    def submit(self, batch: RaggedBatch, segments: Sequence[OutputSegment]) -> Future[StepResult]:
        """Enqueue one step; returns without waiting for the device."""
        config = step_config(
            batch.num_tokens,
            batch.num_sequences,
            int(batch.lengths.max()),
            by_length=self._by_length,
            num_spans=0 if batch.spans is None else batch.num_rows,
        )
        future: Future[StepResult] = Future()
        try:
            with torch.inference_mode(), torch.cuda.stream(self._stream):
                inputs = self._inputs_of(config)
                host, copied = self._to_device.take(4 * inputs.num_ints)
                ints = host[: 4 * inputs.num_ints].view(torch.int32)
                inputs.fill(ints.numpy(), batch)
                inputs.device_ints.copy_(ints, non_blocking=True)
                copied.record(self._stream)
                rows = self._graphs.run(config, lambda: self._work(inputs))
                flying = self._copy_out(rows, batch.num_rows, segments, future)
        except torch.OutOfMemoryError as error:
            future.set_exception(error)
            return future
        except RuntimeError as error:
            if _is_fatal(error):
                raise EngineDeadError(str(error)) from error
            future.set_exception(error)
            return future
        self._waiting.put(flying)
        return future

    def warm_up(self) -> None:
        """Build kernels for the usual sizes, and capture their graphs where that is asked for."""
        for num_tokens in (64, 128, 256, 512, 1024, 4096):
            batch = RaggedBatch.from_sequences([np.zeros(64, np.int32)] * (num_tokens // 64))
            segment = OutputSegment(0, batch.num_sequences, OutputSpec())
            for _ in range(2):
                self.submit(batch, (segment,)).result()

    def close(self) -> None:
        """Finish the steps that were taken, free the graphs."""
        self._waiting.put(None)
        self._waiter.join()
        self._graphs.clear()
        self._inputs.clear()

    def _inputs_of(self, config: StepConfig) -> InputBuffers:
        inputs = self._inputs.get(config)
        if inputs is None:
            inputs = self._inputs[config] = InputBuffers(config, self._device)
        return inputs

    def _work(self, inputs: InputBuffers) -> PooledRows:
        states = self._model.forward(inputs.batch)
        pooled = pool_rows(
            states, inputs.batch, self._recipe.pooling, normalize=self._recipe.normalize
        )
        return self._recipe.of_pooled_on_gpu(pooled)

    def _copy_out(
        self,
        rows: PooledRows,
        num_rows: int,
        segments: Sequence[OutputSegment],
        future: Future[StepResult],
    ) -> _Flying:
        """Enqueue what follows the model: each segment's form, and the copies to the host."""
        wanted = []
        for segment in segments:
            # Pooling has made this form already, inside the graph.
            if self._recipe.is_default_form(segment.spec, rows.default_form.shape[1]):
                wanted.append(rows.default_form[segment.start : segment.stop])
            else:
                wanted += self._recipe.finish(rows.pooled, (segment,))
        wanted.append(rows.finite[:num_rows])
        # From torch's own pinned allocator: it gives memory back only when copies from this stream
        # are done, so results may wait for their reader as long as they like.
        host = torch.empty(total_bytes(wanted), dtype=torch.uint8, pin_memory=True)
        views, offset = [], 0
        for tensor in wanted:
            view = host[offset : offset + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            view.copy_(tensor, non_blocking=True)
            views.append(view)
            offset += total_bytes([tensor])
        event = torch.cuda.Event()
        event.record(self._stream)
        return _Flying(future, event, views)

    def _complete(self) -> None:
        while (flying := self._waiting.get()) is not None:
            try:
                flying.event.synchronize()
                *rows, finite = [tensor.numpy() for tensor in flying.tensors]
                # Own memory: pinned memory is dear, and the caller may keep rows for long.
                result = StepResult([array.copy() for array in rows], finite.astype(np.bool_))
            except RuntimeError as error:
                flying.future.set_exception(EngineDeadError(str(error)))
            else:
                flying.future.set_result(result)


def _is_fatal(error: RuntimeError) -> bool:
    """Whether the CUDA context is lost: an illegal access, an assert or a hardware fault."""
    return isinstance(error, torch.AcceleratorError)
