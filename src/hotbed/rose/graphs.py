"""CUDA graphs by configuration: eager at first sight, then captured, then replayed.

All graphs share one memory pool: they run one after another on one stream, so the intermediates of
one may lie where another's lay. What a graph reads and what it returns is kept alive by whoever
holds its `Capture`.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from hotbed.rose.buckets import StepConfig

T = TypeVar("T")

# Eager steps of a configuration that idle mode waits for an idle moment: under load that never
# ends a capture, once, costs less than eager steps for ever.
_IDLE_PATIENCE = 32
# During a capture torch cannot give cached memory back to get other; the intermediates of a step
# take less than this.
_SHORT_OF_MEMORY_BYTES = 4 << 30


class CaptureMode(enum.Enum):
    """When graphs are captured."""

    LAZY = "lazy"
    """At the second step of a configuration."""
    IDLE = "idle"
    """While no step waits, so that no request pays for it: configurations that were seen, then the
    usual ones. One that is seen often before the device is idle is captured as with lazy."""
    START = "start"
    """The usual configurations before the first request, the others as with lazy."""
    OFF = "off"
    """Never: every step is eager."""


@dataclass(slots=True)
class GraphCounters:
    """What became of the steps so far."""

    eager: int = 0
    captured: int = 0
    captured_idle: int = 0
    """Of `captured`: while no step waited."""
    replayed: int = 0
    evicted: int = 0


@dataclass(slots=True)
class _Captured(Generic[T]):
    graph: torch.cuda.CUDAGraph
    result: T
    num_bytes: int


class GraphCache(Generic[T]):
    """Runs work eagerly or as a graph, per configuration; on one stream, from one thread.

    Args:
        stream: the stream everything runs on.
        mode: when to capture.
        max_bytes: device memory that all graphs together may have added; past it the graph that was
            used longest ago goes.
        max_graphs: the same for their number.
        max_tokens: steps of more tokens are always eager: launches no longer matter there.
    """

    def __init__(
        self,
        stream: torch.cuda.Stream,
        *,
        mode: CaptureMode,
        max_bytes: int,
        max_graphs: int,
        max_tokens: int,
    ) -> None:
        self.counters = GraphCounters()
        self._stream = stream
        self.mode = mode
        self._max_bytes = max_bytes
        self._max_graphs = max_graphs
        self._max_tokens = max_tokens
        self._pool = torch.cuda.graph_pool_handle()
        self._num_seen: dict[StepConfig, int] = {}
        self._for_idle: dict[StepConfig, Callable[[], T]] = {}
        self._graphs: OrderedDict[StepConfig, _Captured[T]] = OrderedDict()

    @property
    def num_bytes(self) -> int:
        """Device memory that the graphs have added."""
        return sum(captured.num_bytes for captured in self._graphs.values())

    def run(self, config: StepConfig, work: Callable[[], T]) -> T:
        """Enqueue `work` on the stream and return its result, whose values come later.

        Args:
            config: work of one configuration does the same launches on the same inputs' addresses.
            work: launches only: no host sync, no copy from pageable memory.
        """
        if self.mode is CaptureMode.OFF or config.num_tokens > self._max_tokens:
            self.counters.eager += 1
            return work()
        captured = self._graphs.get(config)
        if captured is None:
            if not self._is_due(config, work):
                self.counters.eager += 1
                return work()
            captured = self.capture(config, work)
        else:
            self._graphs.move_to_end(config)
            self.counters.replayed += 1
        captured.graph.replay()
        return captured.result

    def knows(self, config: StepConfig) -> bool:
        """Whether a step of this configuration was run and may be captured or is."""
        return config in self._num_seen or config.num_tokens > self._max_tokens

    def holds(self, config: StepConfig) -> bool:
        """Whether the work of a step of this configuration is kept: captured, or to be captured."""
        return config in self._graphs or config in self._for_idle

    def capture_idle(self) -> bool:
        """In idle mode: capture one configuration that was seen; False if there is none."""
        if not self._for_idle:
            return False
        config = next(iter(self._for_idle))
        self.capture(config, self._for_idle[config])
        self.counters.captured_idle += 1
        return True

    def _is_due(self, config: StepConfig, work: Callable[[], T]) -> bool:
        """Whether a step of a configuration without a graph is to capture it."""
        num_seen = self._num_seen.get(config, 0)
        self._num_seen[config] = num_seen + 1
        if self.mode is not CaptureMode.IDLE:
            return num_seen > 0
        self._for_idle[config] = work
        return num_seen >= _IDLE_PATIENCE

    def capture(self, config: StepConfig, work: Callable[[], T]) -> _Captured[T]:
        """Capture `work`, which has run eagerly before (kernels built, libraries initialised)."""
        self._for_idle.pop(config, None)
        captured = self._graphs[config] = self._record(work)
        self.counters.captured += 1
        self._evict()
        return captured

    def _record(self, work: Callable[[], T]) -> _Captured[T]:
        """A graph of `work`, captured on torch's current stream, which is this cache's."""
        device = self._stream.device
        # Not torch.cuda.graph: it waits for the device first and gives cached memory back, which
        # the next eager steps would have to ask for again. That is done only if memory is short.
        if torch.cuda.mem_get_info(device)[0] < _SHORT_OF_MEMORY_BYTES:
            torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved(device)
        graph = torch.cuda.CUDAGraph()
        # thread_local: other threads (metrics, other replicas' waits) may use CUDA meanwhile.
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            result = work()
        finally:
            graph.capture_end()
        added = max(0, torch.cuda.memory_reserved(device) - before)
        return _Captured(graph, result, added)

    def clear(self) -> None:
        """Drop all graphs and their memory."""
        self._graphs.clear()
        self._num_seen.clear()
        self._for_idle.clear()
        # The pool went with the last graph; the handle of a dead one may not be used again.
        self._pool = torch.cuda.graph_pool_handle()

    def _evict(self) -> None:
        while len(self._graphs) > 1 and (
            len(self._graphs) > self._max_graphs or self.num_bytes > self._max_bytes
        ):
            # Replays of it that are still queued must end before its memory goes.
            self._stream.synchronize()
            config, _ = self._graphs.popitem(last=False)
            self._num_seen.pop(config, None)
            self.counters.evicted += 1
