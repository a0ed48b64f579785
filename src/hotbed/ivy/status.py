"""GET /health, /ready and /metrics."""

from __future__ import annotations

from typing import Literal

import msgspec

from hotbed.ivy.http import Reply
from hotbed.ivy.metrics import Metrics
from hotbed.ivy.pool import ReplicaPool


class Health(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Answer of GET /health: the process lives."""

    status: Literal["live"] = "live"


class ReplicaStatus(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One replica as the gateway sees it."""

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

    def __init__(self, pool: ReplicaPool, metrics: Metrics, *, min_ready_replicas: int) -> None:
        self.draining = False
        self._pool = pool
        self._metrics = metrics
        self._min_ready_replicas = min_ready_replicas

    def health(self) -> Reply:
        """200 for as long as the process answers."""
        return Reply(200, msgspec.json.encode(Health()))

    def ready(self) -> Reply:
        """200 while enough replicas are up and the process is not asked to stop, else 503."""
        num_up = self._pool.num_up
        status: Literal["ready", "not_ready", "draining"]
        if self.draining:
            status = "draining"
        else:
            status = "ready" if num_up >= self._min_ready_replicas else "not_ready"
        readiness = Readiness(
            status=status,
            num_up=num_up,
            min_ready_replicas=self._min_ready_replicas,
            replicas=[
                ReplicaStatus(address=r.address, state=r.state, reason=r.reason)
                for r in self._pool.replicas
            ],
        )
        return Reply(200 if status == "ready" else 503, msgspec.json.encode(readiness))

    def metrics(self) -> Reply:
        """Prometheus' text format."""
        self._pool.update_metrics()
        content_type = (b"content-type", b"text/plain; version=1.0.0; charset=utf-8")
        return Reply(200, self._metrics.text(), (content_type,))
