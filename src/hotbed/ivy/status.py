"""GET /health, /ready and /metrics."""

from __future__ import annotations

from typing import Literal

import msgspec

from hotbed.ivy.http import Reply
from hotbed.ivy.metrics import Metrics
from hotbed.ivy.registry import Registry


class Health(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Answer of GET /health: the process lives."""

    status: Literal["live"] = "live"


class ReplicaStatus(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One replica as the gateway sees it."""

    model: str
    address: str
    state: Literal["connecting", "up", "not_serving", "refused", "down"]
    """refused: it works, but serves something else than the gateway or the other replicas."""
    reason: str


class Readiness(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Answer of GET /ready."""

    status: Literal["ready", "not_ready", "draining"]
    num_up: int
    min_ready_replicas: int
    replicas: list[ReplicaStatus]


class StatusRoutes:
    """The routes' handlers. `draining` is set once, when the process is asked to stop."""

    def __init__(self, models: Registry, metrics: Metrics) -> None:
        self.draining = False
        self._models = models
        self._metrics = metrics

    def health(self) -> Reply:
        """200 for as long as the process answers."""
        return Reply(200, msgspec.json.encode(Health()))

    def ready(self) -> Reply:
        """200 while enough replicas are up and the process is not asked to stop, else 503."""
        services = self._models.services
        status: Literal["ready", "not_ready", "draining"]
        status = "ready" if self._models.is_ready else "not_ready"
        if self.draining:
            status = "draining"
        readiness = Readiness(
            status=status,
            num_up=sum(service.pool.num_up for service in services),
            min_ready_replicas=sum(service.num_ready_replicas for service in services),
            replicas=[
                ReplicaStatus(model=service.name, address=r.address, state=r.state, reason=r.reason)
                for service in services
                for r in service.pool.replicas
            ],
        )
        return Reply(200 if status == "ready" else 503, msgspec.json.encode(readiness))

    def metrics(self) -> Reply:
        """Prometheus' text format."""
        for service in self._models.services:
            service.pool.update_metrics()
        content_type = (b"content-type", b"text/plain; version=1.0.0; charset=utf-8")
        return Reply(200, self._metrics.text(), (content_type,))
