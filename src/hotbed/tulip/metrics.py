"""What Tulip counts, in Prometheus form.

Label sets are closed: nothing a client sends becomes a label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.output import OUTPUT_KINDS
from hotbed.tulip.work import Answer, Step

_OK = "ok"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TOKENS = tuple(2**i for i in range(4, 19))
_SEQUENCES = tuple(2**i for i in range(12))


class _EngineCounters(Collector):
    def __init__(self, counters: Callable[[], Mapping[str, int]]) -> None:
        self._counters = counters

    def collect(self) -> Iterable[CounterMetricFamily]:
        family = CounterMetricFamily(
            "hotbed_tulip_engine",
            "The engine's totals, on a GPU: steps that ran eagerly or replayed a CUDA graph, "
            "captures, those of them while idle, evicted graphs.",
            labels=("what",),
        )
        for name, total in self._counters().items():
            family.add_metric((name,), total)
        yield family


@dataclass(slots=True)
class StepTotals:
    """Steps since the start: those that gave a result, what was in them, and those that raised."""

    steps: int = 0
    sequences: int = 0
    tokens: int = 0
    seconds: float = 0.0
    failed: int = 0


class Metrics:
    """One process's numbers, in a registry of their own.

    Called on the event loop; the page is served from threads of its own.
    """

    def __init__(self) -> None:
        self.totals = StepTotals()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._queue_tokens = Gauge(
            "hotbed_tulip_queue_tokens",
            "Tokens of accepted sequences that no step has taken yet.",
            registry=self.registry,
        )
        self._unsent_bytes = Gauge(
            "hotbed_tulip_unsent_bytes",
            "Rows answered that clients have not read yet; grows while a client does not read.",
            registry=self.registry,
        )
        self._step_tokens = Histogram(
            "hotbed_tulip_step_tokens",
            "Tokens in a step.",
            buckets=_TOKENS,
            registry=self.registry,
        )
        self._step_sequences = Histogram(
            "hotbed_tulip_step_sequences",
            "Sequences in a step.",
            buckets=_SEQUENCES,
            registry=self.registry,
        )
        self._step_seconds = Histogram(
            "hotbed_tulip_step_seconds",
            "From the start of a step to its result.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._queue_seconds = Histogram(
            "hotbed_tulip_queue_seconds",
            "From an item's acceptance to the start of its last step.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._failed_steps = Counter(
            "hotbed_tulip_failed_steps",
            "Steps that raised; they were split and tried again, or failed one item.",
            registry=self.registry,
        )
        items = Counter(
            "hotbed_tulip_items",
            "Items by outcome: ok, or the error code they were answered or refused with.",
            labelnames=("outcome",),
            registry=self.registry,
        )
        self._items = {o: items.labels(o) for o in (_OK, *(code.value for code in ErrorCode))}

        outputs = Counter(
            "hotbed_tulip_outputs",
            "Answered outputs of items that asked for more than dense rows, by kind.",
            labelnames=("kind",),
            registry=self.registry,
        )
        self._outputs = {kind: outputs.labels(kind) for kind in OUTPUT_KINDS}

    def watch_queue(self, num_waiting_tokens: Callable[[], int]) -> None:
        """Read the queue's length from here whenever the page is asked for."""
        self._queue_tokens.set_function(num_waiting_tokens)

    def watch_unsent(self, num_bytes: Callable[[], int]) -> None:
        """Read the bytes that clients have not read from here whenever the page is asked for."""
        self._unsent_bytes.set_function(num_bytes)

    def watch_engine(self, counters: Callable[[], Mapping[str, int]]) -> None:
        """Read the engine's own totals from here whenever the page is asked for."""
        self.registry.register(_EngineCounters(counters))

    def step_done(self, step: Step, seconds: float) -> None:
        """A step gave its result `seconds` after it began."""
        totals = self.totals
        totals.steps += 1
        totals.sequences += step.num_sequences
        totals.tokens += step.num_tokens
        totals.seconds += seconds
        self._step_tokens.observe(step.num_tokens)
        self._step_sequences.observe(step.num_sequences)
        self._step_seconds.observe(seconds)

    def step_failed(self) -> None:
        """A step raised."""
        self.totals.failed += 1
        self._failed_steps.inc()

    def answered(self, answer: Answer) -> None:
        """An accepted item was answered."""
        if isinstance(answer.result, HotbedError):
            self._items[answer.result.code.value].inc()
        else:
            self._items[_OK].inc()
            self._queue_seconds.observe(answer.queue_s)
            if isinstance(answer.result, list):
                for spec in answer.item.spec.each():
                    self._outputs[spec.kind].inc()

    def refused(self, error: HotbedError) -> None:
        """An item was not accepted."""
        self._items[error.code.value].inc()

    def serve(self, host: str, port: int) -> tuple[WSGIServer, Thread]:
        """Serve the page over HTTP; stop with ``server.shutdown(); thread.join()``.

        Raises:
            OSError: the address cannot be bound.
        """
        return start_http_server(port, addr=host, registry=self.registry)
