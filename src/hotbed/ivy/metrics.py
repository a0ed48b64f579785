"""Prometheus metrics of one Ivy process. Every label has a small set of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from hotbed.ivy.histograms import Counts, Histograms

# 0.1 ms to a minute, about two a factor of 2.5.
_SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5,
    10, 30, 60,
)  # fmt: skip
_TOKENS = tuple(float(2**n) for n in range(2, 21))


class Metrics:
    """All metrics of one application, in a registry of its own.

    Args:
        routes: known paths; others are counted as ``other``.
    """

    def __init__(self, *, routes: Sequence[str] = ()) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._routes = frozenset(routes)
        self._requests = Counts(
            "hotbed_ivy_requests", "Answers by route and status.", label="route", second="status"
        )
        registry.register(self._requests)
        self.request_seconds = Histograms(
            "hotbed_ivy_request_seconds", "Time to an answer of status 200, by route.",
            label="route", bounds=_SECONDS,
        )  # fmt: skip
        stages = Histograms(
            "hotbed_ivy_stage_seconds",
            "Time of a request's stages: parse (JSON in), tokenize (until the ids were there), "
            "queue (longest wait of a chunk at a replica), device (longest chunk), encode (JSON "
            "out).",
            label="stage", bounds=_SECONDS,
        )  # fmt: skip
        names = ("parse", "tokenize", "queue", "device", "encode")
        self.stages = {name: stages.series(name) for name in names}
        """The histogram of each stage."""
        self.parse_seconds = self.stages["parse"]
        self.tokenize_seconds = self.stages["tokenize"]
        self.queue_seconds = self.stages["queue"]
        self.device_seconds = self.stages["device"]
        self.encode_seconds = self.stages["encode"]
        request_tokens = Histograms(
            "hotbed_ivy_request_tokens", "Tokens of a request, by model.",
            label="model", bounds=_TOKENS,
        )  # fmt: skip
        self._request_tokens = request_tokens
        for histograms in (self.request_seconds, stages, request_tokens):
            registry.register(histograms)
        self._requests_in_flight = Gauge(
            "hotbed_ivy_requests_in_flight", "Requests being worked on.", registry=registry
        )
        self._inputs = Counts("hotbed_ivy_inputs", "Inputs computed, by model.", label="model")
        self._tokens = Counts("hotbed_ivy_tokens", "Tokens computed, by model.", label="model")
        self._chunks = Counts("hotbed_ivy_chunks", "Chunks answered, by model.", label="model")
        self._messages = Counts(
            "hotbed_ivy_stream_messages",
            "Messages written to replicas, by model; each holds one or more chunks.",
            label="model",
        )
        for counts in (self._inputs, self._tokens, self._chunks, self._messages):
            registry.register(counts)
        self.retries = Counter(
            "hotbed_ivy_chunk_retries", "Chunks sent once more, to another replica.",
            registry=registry,
        )  # fmt: skip
        self.hedges = Counter(
            "hotbed_ivy_chunk_hedges", "Chunks sent to a second replica because the first was "
            "slow.", registry=registry,
        )  # fmt: skip
        self.ejections = Counter(
            "hotbed_ivy_replica_ejections", "Times that a failing replica was left out for a "
            "while.", registry=registry,
        )  # fmt: skip
        self._pending_tokens = Gauge(
            "hotbed_ivy_pending_tokens", "Tokens of requests that are not answered yet, by model.",
            ["model"], registry=registry,
        )  # fmt: skip
        self._replica_up = Gauge(
            "hotbed_ivy_replica_up", "1 if the replica is used.", ["model", "replica"],
            registry=registry,
        )  # fmt: skip
        self._replica_tokens = Gauge(
            "hotbed_ivy_replica_outstanding_tokens", "Tokens given to it, not answered yet.",
            ["model", "replica"], registry=registry,
        )  # fmt: skip

    def count_answer(self, route: str, status: int) -> None:
        """Count one answer."""
        self._requests.add((route if route in self._routes else "other", status), 1)

    def watch_in_flight(self, number: Callable[[], int]) -> None:
        """Read the requests in flight from here whenever the metrics are asked for."""
        self._requests_in_flight.set_function(number)

    def know_routes(self, routes: Sequence[str]) -> None:
        """Count these by their own names from now on."""
        self._routes = frozenset(routes)

    def totals(self) -> dict[str, int]:
        """The sums over all labels that the page at / shows."""
        answered = self.request_seconds.all_series()
        return {
            "requests": sum(sum(series.counts) for series in answered),
            "tokens": self._tokens.total,
            "chunks": self._chunks.total,
            "messages": self._messages.total,
        }

    def for_model(self, name: str) -> ModelMetrics:
        """What is counted for one model."""
        return ModelMetrics(self, name)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class Computed(Protocol):
    """What the replicas gave for a request (`hotbed.ivy.spread.SpreadRows`)."""

    @property
    def num_chunks(self) -> int: ...
    @property
    def queue_us(self) -> int: ...
    @property
    def step_us(self) -> int: ...


class ModelMetrics:
    """The metrics that have a model's label, and the others that its work counts."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self.process = metrics
        self._model = model
        self._key = (model,)
        self._request_tokens = metrics._request_tokens.series(model)

    def count_work(
        self, num_inputs: int, num_tokens: int, tokenize_s: float, computed: Computed
    ) -> None:
        """Count one request that was computed."""
        metrics, key = self.process, self._key
        metrics._inputs.add(key, num_inputs)
        metrics._tokens.add(key, num_tokens)
        metrics._chunks.add(key, computed.num_chunks)
        self._request_tokens.observe(num_tokens)
        metrics.tokenize_seconds.observe(tokenize_s)
        metrics.queue_seconds.observe(computed.queue_us / 1e6)
        metrics.device_seconds.observe(computed.step_us / 1e6)

    def count_message(self) -> None:
        """Count one message written to a replica."""
        self.process._messages.add(self._key, 1)

    def set_pending_tokens(self, num_tokens: int) -> None:
        """Note the tokens of requests that are not answered yet."""
        self.process._pending_tokens.labels(self._model).set(num_tokens)

    def set_replica(self, address: str, *, is_up: bool, outstanding_tokens: int) -> None:
        """Note a replica's state."""
        metrics = self.process
        metrics._replica_up.labels(self._model, address).set(is_up)
        metrics._replica_tokens.labels(self._model, address).set(outstanding_tokens)

    def forget_replica(self, address: str) -> None:
        """The replica is no longer in the list."""
        metrics = self.process
        metrics._replica_up.remove(self._model, address)
        metrics._replica_tokens.remove(self._model, address)
