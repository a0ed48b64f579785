"""Steps on a CUDA device: one stream, static inputs, graphs, and copies nobody waits for.

`submit` is called from one thread and only enqueues:

    pinned inputs -> (one copy) -> static device inputs -> model, pooling (eager or graph)
      -> rows as each segment wants them -> (one copy, in the default form) -> pinned rows -> event

Who blocks for a result waits for its event itself; a second thread waits where it is awaited.
What a step needs on the host is used again by later ones: `submit` is to cost 60 us at most.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import torch

from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import EngineDeadError, StepResult
from hotbed.rose.buckets import StepConfig, step_config
from hotbed.rose.buffers import InputBuffers
from hotbed.rose.graphs import CaptureMode, GraphCache, GraphCounters
from hotbed.rose.layers.pool import PooledRows, pool_rows
from hotbed.rose.outputs import Made, Outputs, TokenView
from hotbed.rose.readback import read_back
from hotbed.rose.recipe import AnyRecipe
from hotbed.rose.registry import Model
from hotbed.rose.staging import StagingPool
from hotbed.rose.step_future import StepFuture

DEFAULT_MAX_GRAPH_TOKENS = 16_384
_WARM_UP_TOKENS = (64, 128, 256, 512, 1024, 4096)
_WARM_UP_LENGTH = 64
# Of large steps of 512 tokens a text each number is a configuration (`hotbed.rose.buckets`).
_USUAL_TEXTS = range(2, 17)
_USUAL_STEPS = (2048, 4096, 8192)
# Modes that capture at the second step of a configuration, warm-up's included.
_CAPTURING_WARM_UP = (CaptureMode.LAZY, CaptureMode.START)


@dataclass(frozen=True, slots=True)
class CudaSettings:
    """Settings of the graphs.

    Attributes:
        capture: when graphs are captured.
        max_graph_bytes: device memory graphs may add.
        max_graphs: how many there may be.
        max_graph_tokens: larger steps run eagerly; None takes the calibrated crossover, or 16,384.
    """

    capture: CaptureMode = CaptureMode.LAZY
    max_graph_bytes: int = 8 * 1024**3
    max_graphs: int = 256
    max_graph_tokens: int | None = None


class _CurrentStream:
    """Makes `stream` torch's current one for a while, like `torch.cuda.stream` at half its cost."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._previous = stream
        self._slow: torch.cuda.StreamContext | None = None

    def __enter__(self) -> None:
        self._previous = torch.cuda.current_stream()
        if self._previous.device_index == self._stream.device_index:
            torch.cuda.set_stream(self._stream)
        else:  # another device is current: torch knows how to come back
            self._slow = torch.cuda.stream(self._stream)
            self._slow.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._slow is None:
            torch.cuda.set_stream(self._previous)
        else:
            slow, self._slow = self._slow, None
            slow.__exit__(kind, error, trace)


class CudaRunner:
    """Runs steps on one device.

    Args:
        model: built on the device.
        recipe: of its rows.
        outputs: the heads of other outputs; None: there are none.
        device: the CUDA device.
        settings: of the graphs.
        by_length: whether the attention backend wants a class of longest sequences.
        by_shape: whether it wants steps of one length, and of short texts, set apart.
        max_tokens: longest sequence that is run without being asked for, to warm up.
        pair_offset: of the model's positions, see `hotbed.rose.batch`.
        whole_step_attention: whether the model's own attention goes over all pairs of a step's
            tokens, so that small steps are the cheapest a token.
    """

    # Texts of 512 tokens a second in steps of 4,096 / 8,192 / 16,384 tokens: 989 / 1,007 / 1,014 at
    # 0.6B, 1,501 / 1,536 / 1,536 in bge-m3's (H200, 2026-11-30); small steps answer sooner.
    default_step_tokens = 8192
    # By count, not measured: in MPNet's base shape a token costs 14 MFLOP of products a layer, and
    # of such attention 3 in a step of 1,024 tokens, 25 in one of 8,192, at a lower rate.
    whole_step_tokens = 1024

    def __init__(
        self,
        model: Model,
        recipe: AnyRecipe,
        *,
        device: torch.device,
        settings: CudaSettings,
        by_length: bool,
        by_shape: bool = False,
        max_tokens: int = _WARM_UP_LENGTH,
        pair_offset: int = 0,
        outputs: Outputs | None = None,
        whole_step_attention: bool = False,
    ) -> None:
        if whole_step_attention:
            self.default_step_tokens = self.whole_step_tokens
        self._model = model
        self._outputs = outputs
        self._pair_offset = pair_offset
        self._recipe = recipe
        self._device = device
        self._by_length, self._by_shape = by_length, by_shape
        self._max_tokens = max_tokens
        with torch.cuda.device(device):
            self._stream = torch.cuda.Stream(device)
            self._graphs: GraphCache[PooledRows] = GraphCache(
                self._stream,
                mode=settings.capture,
                max_bytes=settings.max_graph_bytes,
                max_graphs=settings.max_graphs,
                max_tokens=(
                    DEFAULT_MAX_GRAPH_TOKENS
                    if settings.max_graph_tokens is None
                    else settings.max_graph_tokens
                ),
            )
        self._on_stream = _CurrentStream(self._stream)
        self._max_inputs = 2 * settings.max_graphs
        self._inputs: dict[StepConfig, InputBuffers] = {}
        self._input_staging = StagingPool(pinned=True)
        self._row_staging = StagingPool(pinned=True)
        self._likely: list[RaggedBatch] = []
        self._last: StepFuture | None = None
        self._watched: queue.SimpleQueue[StepFuture | None] = queue.SimpleQueue()
        self._waiter = threading.Thread(target=self._complete, name="rose-wait", daemon=True)
        self._waiter.start()

    @property
    def counters(self) -> GraphCounters:
        """Steps that ran eagerly, were captured, replayed; graphs that were evicted."""
        return self._graphs.counters

    @property
    def capture_mode(self) -> CaptureMode:
        """When graphs are captured; with OFF those that exist are not replayed either."""
        return self._graphs.mode

    @capture_mode.setter
    def capture_mode(self, mode: CaptureMode) -> None:
        self._graphs.mode = mode

    def submit(self, batch: RaggedBatch, segments: Sequence[OutputSegment]) -> Future[StepResult]:
        """Enqueue one step; returns without waiting for the device."""
        others = [s for s in segments if s.spec.kind != "dense"]
        config = self._config_of(batch, keeps_states=bool(others))
        try:
            with self._on_stream:
                inputs = self._inputs_of(config)
                sent = self._input_staging.take(inputs.num_ints)
                inputs.fill(sent.array, batch)
                inputs.device_ints.copy_(sent.first(inputs.num_ints), non_blocking=True)
                done = self._graphs.run(config, lambda: self._work(inputs))
                rows = read_back(
                    done,
                    segments,
                    num_rows=batch.num_rows,
                    recipe=self._recipe,
                    pool=self._row_staging,
                    made=[self._make(done, inputs, batch, segment) for segment in others],
                )
                if rows.staging.event is None:
                    rows.staging.event = torch.cuda.Event()
                rows.staging.event.record(self._stream)
        except torch.OutOfMemoryError as error:
            return _failed(error)
        except RuntimeError as error:
            if _is_fatal(error):
                raise EngineDeadError(str(error)) from error
            return _failed(error)

        def release() -> None:
            self._input_staging.give_back(sent)
            self._row_staging.give_back(rows.staging)

        self._last = StepFuture(rows, watch=self._watched.put, release=release)
        return self._last

    def idle(self) -> bool:
        """In idle mode: capture one configuration that was seen, or run one that is likely."""
        if self._graphs.mode is not CaptureMode.IDLE:
            return False
        if self._last is not None and not self._last.done():
            return True  # a capture waits for the device, and so would who comes next
        with self._on_stream:
            if self._graphs.capture_idle():
                return True
        while self._likely:
            batch = self._likely.pop()
            keeps_states = self._usual_spec.kind != "dense"
            if not self._graphs.knows(self._config_of(batch, keeps_states=keeps_states)):
                self._run(batch)
                return True
        return False

    def warm_up(self) -> None:
        """Build kernels for the usual sizes, and capture their graphs where that is asked for."""
        length = min(_WARM_UP_LENGTH, self._max_tokens)
        basic = [_uniform(length, n // length) for n in _WARM_UP_TOKENS]
        usual = _usual(self._max_tokens)
        for batch in basic + (usual if self._graphs.mode is CaptureMode.START else []):
            for _ in range(2 if self._graphs.mode in _CAPTURING_WARM_UP else 1):
                self._run(batch).result()
        if self._graphs.mode is CaptureMode.IDLE:
            self._likely = usual[::-1]

    def close(self) -> None:
        """Finish the steps that were taken, free the graphs."""
        self._stream.synchronize()
        self._watched.put(None)
        self._waiter.join()
        self._graphs.clear()
        self._inputs.clear()

    def _run(self, batch: RaggedBatch) -> Future[StepResult]:
        return self.submit(batch, (OutputSegment(0, batch.num_sequences, self._usual_spec),))

    @property
    def _usual_spec(self) -> OutputSpec:
        return OutputSpec() if self._outputs is None else OutputSpec(kind=self._outputs.first)

    def _config_of(self, batch: RaggedBatch, *, keeps_states: bool) -> StepConfig:
        config = step_config(
            batch.num_tokens,
            batch.num_sequences,
            int(batch.lengths.max()) if self._by_length or self._by_shape else 0,
            by_length=self._by_length,
            num_spans=0 if batch.spans is None else batch.num_rows,
            by_shape=self._by_shape,
        )
        return config._replace(keeps_states=True) if keeps_states else config

    def _inputs_of(self, config: StepConfig) -> InputBuffers:
        inputs = self._inputs.get(config)
        if inputs is None:
            if len(self._inputs) >= self._max_inputs:
                # A graph goes on reading those it was captured with.
                self._inputs = {c: i for c, i in self._inputs.items() if self._graphs.holds(c)}
            inputs = self._inputs[config] = InputBuffers(
                config, self._device, pair_offset=self._pair_offset
            )
        return inputs

    @torch.inference_mode()
    def _work(self, inputs: InputBuffers) -> PooledRows:
        states = self._model.forward(inputs.batch)
        pooled = pool_rows(
            states, inputs.batch, self._recipe.pooling, normalize=self._recipe.normalize
        )
        rows = self._recipe.of_pooled_on_gpu(pooled)
        return rows._replace(states=states) if inputs.keeps_states else rows

    @torch.inference_mode()
    def _make(
        self, done: PooledRows, inputs: InputBuffers, batch: RaggedBatch, segment: OutputSegment
    ) -> Made:
        """One output other than dense rows, of the segment's sequences alone; eager."""
        assert self._outputs is not None, "the engine has checked that there are outputs: a bug"
        assert done.states is not None, "the step's configuration keeps the states: a bug"
        first, last = batch.sequence_of(segment.start), batch.sequence_of(segment.stop - 1) + 1
        start, stop = int(batch.cu_seqlens[first]), int(batch.cu_seqlens[last])
        view = TokenView(
            done.states[start:stop],
            inputs.batch.cu_seqlens[first : last + 1] - start,
            batch.lengths[first:last],
            batch.token_ids[start:stop],
        )
        return self._outputs.make(view, segment.spec)

    def _complete(self) -> None:
        while (future := self._watched.get()) is not None:
            future.settle()


def _failed(error: Exception) -> Future[StepResult]:
    future: Future[StepResult] = Future()
    future.set_exception(error)
    return future


def _uniform(length: int, num_sequences: int) -> RaggedBatch:
    return RaggedBatch.from_sequences([np.zeros(length, np.int32)] * num_sequences)


def _usual(max_tokens: int) -> list[RaggedBatch]:
    """The configurations that most services meet: one text, several of 512 tokens, and full steps;
    smallest first.
    """
    sizes = (*range(32, 129, 32), *range(192, 1025, 64))
    single = [_uniform(n, 1) for n in sizes if n <= max_tokens]
    length = min(512, max_tokens)
    counts = {*_USUAL_TEXTS, *(n // length for n in _USUAL_STEPS)}
    return single + [_uniform(length, n) for n in sorted(counts)]


def _is_fatal(error: RuntimeError) -> bool:
    """Whether the CUDA context is lost: an illegal access, an assert or a hardware fault."""
    return isinstance(error, torch.AcceleratorError)
