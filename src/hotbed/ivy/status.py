"""GET /health, /ready, /status and /metrics."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Literal

import msgspec

from hotbed import __version__
from hotbed.core.model_info import Task
from hotbed.ivy.fresh import Fresh
from hotbed.ivy.http import Reply
from hotbed.ivy.metrics import Metrics
from hotbed.ivy.registry import ModelService, Registry
from hotbed.ivy.replica import Replica
from hotbed.ivy.work import WorkDoor
from hotbed.wire import tulip_pb2 as pb


class Health(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Answer of GET /health: the process lives."""

    status: Literal["live"] = "live"


class Version(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Answer of GET /version (vLLM)."""

    version: str = __version__


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


class ReplicaLoad(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a replica says of itself; totals since its start, except where "now" is said."""

    seen_at_s: float
    """When it said so: seconds since the start of this worker."""
    waiting_tokens: int
    """Now: in its queue, from all gateways."""
    open_items: int
    """Now: taken and not answered."""
    steps: int
    """That gave a result."""
    step_sequences: int
    step_tokens: int
    step_seconds: float
    """From the start of each step to its result."""
    failed_steps: int
    engine: dict[str, int]
    """The engine's own totals: on a GPU steps that ran eagerly or replayed a CUDA graph, captures,
    those of them while idle, evicted graphs."""


class ReplicaNow(ReplicaStatus, kw_only=True, forbid_unknown_fields=True):
    """One replica with its load."""

    outstanding_tokens: int
    """Given to it by this worker and not answered yet."""
    num_in_flight: int
    """Items, the same way."""
    is_ejected: bool
    """Left out for a while because it failed."""
    load: ReplicaLoad | None
    """null if it does not say, because it is down or slow; up to a second old."""


class ModelNow(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One model with its replicas."""

    names: tuple[str, ...]
    task: Task
    max_tokens: int
    pending_tokens: int
    """Of this worker's requests that are not answered yet."""
    dimensions: int | None
    """null until the first replica was reached, like the other facts of replicas."""
    dtype: str | None
    device: str | None
    fingerprint: str | None
    replicas: list[ReplicaNow]


class StageNow(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Time spent in a stage since the start."""

    count: int
    seconds: float


class WorkerNow(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """This worker since its start; all but `pid` and `requests_in_flight` only rise."""

    pid: int
    """Which worker this is: another one has totals of its own."""
    uptime_s: float
    requests_in_flight: int
    requests: int
    """Answers of status 200 of routes that make work."""
    tokens: int
    chunks: int
    messages: int
    """Written to replicas, each with one or more chunks."""
    stages: dict[str, StageNow]


class StatusAnswer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Answer of GET /status."""

    version: str
    ready: Literal["ready", "not_ready", "draining"]
    worker: WorkerNow
    models: list[ModelNow]


_STATS_TIMEOUT_S = 0.5
_STATS_AGE_S = 1.0
_Loads = dict[Replica, ReplicaLoad]


class StatusRoutes:
    """The routes' handlers. `draining` is set once, when the process is asked to stop."""

    def __init__(self, models: Registry, door: WorkDoor, metrics: Metrics) -> None:
        self.draining = False
        self._started_at = time.monotonic()
        self._models = models
        self._door = door
        self._metrics = metrics
        # However many look at the page, replicas are asked once a second.
        self._loads = Fresh(self._ask_replicas, max_age_s=_STATS_AGE_S)

    def health(self) -> Reply:
        """200 for as long as the process answers."""
        return Reply(200, msgspec.json.encode(Health()))

    def version(self) -> Reply:
        return Reply(200, msgspec.json.encode(Version()))

    def ready(self) -> Reply:
        """200 while enough replicas are up and the process is not asked to stop, else 503."""
        services = self._models.services
        status = self._state()
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

    def _state(self) -> Literal["ready", "not_ready", "draining"]:
        if self.draining:
            return "draining"
        return "ready" if self._models.is_ready else "not_ready"

    async def _ask_replicas(self) -> _Loads:
        replicas = [r for service in self._models.services for r in service.pool.replicas]
        stats = await asyncio.gather(*(r.stats(timeout_s=_STATS_TIMEOUT_S) for r in replicas))
        seen_at_s = round(time.monotonic() - self._started_at, 3)
        return {
            r: _load_of(s, seen_at_s) for r, s in zip(replicas, stats, strict=True) if s is not None
        }

    async def status(self) -> Reply:
        """What the page at / shows."""
        loads = await self._loads.get()
        answer = StatusAnswer(
            version=__version__,
            ready=self._state(),
            worker=WorkerNow(
                pid=os.getpid(),
                uptime_s=round(time.monotonic() - self._started_at, 3),
                requests_in_flight=self._door.num_in_flight,
                **self._metrics.totals(),
                stages={
                    name: StageNow(count=sum(series.counts), seconds=series.total)
                    for name, series in self._metrics.stages.items()
                },
            ),
            models=[_model_now(service, loads) for service in self._models.services],
        )
        return Reply(200, msgspec.json.encode(answer))

    def metrics(self) -> Reply:
        """Prometheus' text format."""
        for service in self._models.services:
            service.pool.update_metrics()
        content_type = (b"content-type", b"text/plain; version=1.0.0; charset=utf-8")
        return Reply(200, self._metrics.text(), (content_type,))


def _load_of(stats: pb.StatsReply, seen_at_s: float) -> ReplicaLoad:
    return ReplicaLoad(
        seen_at_s=seen_at_s,
        waiting_tokens=stats.waiting_tokens,
        open_items=stats.open_items,
        steps=stats.steps,
        step_sequences=stats.step_sequences,
        step_tokens=stats.step_tokens,
        step_seconds=stats.step_seconds,
        failed_steps=stats.failed_steps,
        engine=dict(stats.engine),
    )


def _model_now(service: ModelService, loads: _Loads) -> ModelNow:
    pool, info = service.pool, service.pool.info
    return ModelNow(
        names=service.model.names,
        task=service.model.expected.task,
        max_tokens=service.model.expected.max_tokens,
        pending_tokens=pool.pending.held,
        dimensions=None if info is None else info.dimensions,
        dtype=None if info is None else info.dtype,
        device=None if info is None else info.device,
        fingerprint=None if info is None else info.fingerprint,
        replicas=[
            ReplicaNow(
                model=service.name,
                address=replica.address,
                state=replica.state,
                reason=replica.reason,
                outstanding_tokens=pool.outstanding(replica),
                num_in_flight=replica.num_in_flight,
                is_ejected=pool.is_ejected(replica),
                load=loads.get(replica),
            )
            for replica in pool.replicas
        ],
    )
