"""Prometheus metrics of one Ivy process. Every label has a small fixed set of values."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

# 1 ms to a minute, about two a factor of 2.5.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """All metrics of one application, in a registry of its own.

    Args:
        routes: known paths; others are counted as ``other``.
        replicas: addresses.
    """

    def __init__(self, *, routes: Sequence[str], replicas: Sequence[str]) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._routes = frozenset(routes)
        self._requests = Counter(
            "hotbed_ivy_requests", "Answers by route and status.", ["route", "status"],
            registry=registry,
        )  # fmt: skip
        self._children: dict[tuple[str, int], Counter] = {}
        self.request_seconds = Histogram(
            "hotbed_ivy_request_seconds", "Time to an embedding answer of status 200.",
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.tokenize_seconds = Histogram(
            "hotbed_ivy_tokenize_seconds", "Time until a request's token ids were there.",
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.requests_in_flight = Gauge(
            "hotbed_ivy_requests_in_flight", "Embedding requests being worked on.",
            registry=registry,
        )  # fmt: skip
        self.inputs = Counter("hotbed_ivy_inputs", "Inputs embedded.", registry=registry)
        self.tokens = Counter("hotbed_ivy_tokens", "Tokens embedded.", registry=registry)
        self.chunks = Counter("hotbed_ivy_chunks", "Chunks answered.", registry=registry)
        self.retries = Counter(
            "hotbed_ivy_chunk_retries", "Chunks sent once more, to another replica.",
            registry=registry,
        )  # fmt: skip
        self.stream_messages = Counter(
            "hotbed_ivy_stream_messages", "Messages written to replicas; each holds one or more "
            "chunks.", registry=registry,
        )  # fmt: skip
        self._replica_up = Gauge(
            "hotbed_ivy_replica_up", "1 if the replica is used.", ["replica"], registry=registry
        )
        self._replica_tokens = Gauge(
            "hotbed_ivy_replica_outstanding_tokens", "Tokens given to it, not answered yet.",
            ["replica"], registry=registry,
        )  # fmt: skip
        for address in replicas:
            self._replica_up.labels(address).set(0)

    def count_answer(self, route: str, status: int) -> None:
        """Count one answer."""
        key = (route if route in self._routes else "other", status)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._requests.labels(key[0], str(status))
        child.inc()

    def set_replica(self, address: str, *, is_up: bool, outstanding_tokens: int) -> None:
        """Note a replica's state, when the metrics are read."""
        self._replica_up.labels(address).set(is_up)
        self._replica_tokens.labels(address).set(outstanding_tokens)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)
