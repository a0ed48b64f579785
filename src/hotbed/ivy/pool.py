"""All replicas of an Ivy process: which are used, who gets which chunk, what happens on failure."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.model_info import ModelInfo
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.ivy.balance import Balance
from hotbed.ivy.metrics import ModelMetrics
from hotbed.ivy.replica import RefusedError, Replica, ReplicaTiming
from hotbed.ivy.settings import IvySettings
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.errors import RETRY_AFTER_S
from hotbed.wire.limits import Limits


@dataclass(frozen=True, slots=True)
class ExpectedModel:
    """What the gateway's own checkpoint says; a replica must agree, or its rows would be wrong."""

    name: str
    vocab_size: int
    max_tokens: int


class ReplicaPool:
    """The replicas, from `start` to `close`.

    Replicas used at the same time have the same model, dimensions and fingerprint: the first one
    up sets them, another one is refused until none of the old is left (so that a new model can be
    rolled out replica by replica without mixing vectors).
    """

    def __init__(
        self,
        settings: IvySettings,
        expected: ExpectedModel,
        metrics: ModelMetrics,
        *,
        addresses: Sequence[str],
    ) -> None:
        self.info: ModelInfo | None = None
        """Of the replicas used now, or used last; None before the first contact."""
        self._settings = settings
        self._expected = expected
        self._metrics = metrics
        self._limits: dict[int, Limits] = {}
        self._balance = Balance(len(addresses))
        self._changed = asyncio.Event()
        timing = ReplicaTiming(settings.connect_timeout_s, settings.max_backoff_s)
        on_message = metrics.process.stream_messages.inc
        self.replicas = [
            Replica(i, address, owner=self, timing=timing, on_message=on_message)
            for i, address in enumerate(addresses)
        ]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def num_up(self) -> int:
        return self._balance.num_up

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._tasks = [
            asyncio.create_task(replica.run(), name=f"replica {replica.address}")
            for replica in self.replicas
        ]

    async def close(self) -> None:
        """End all streams; items in flight get UNAVAILABLE."""
        for replica in self.replicas:
            replica.close()
        await asyncio.gather(*self._tasks)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return once the condition holds; it is looked at whenever a replica comes or goes."""
        while not condition():
            await self._changed.wait()

    def update_metrics(self) -> None:
        for replica in self.replicas:
            self._metrics.set_replica(
                replica.address,
                is_up=self._balance.is_up(replica.index),
                outstanding_tokens=self._balance.outstanding(replica.index),
            )

    # What replicas tell (ReplicaOwner).

    def replica_up(self, index: int, info: ModelInfo, limits: Limits) -> None:
        self._check_expected(info)
        if self.num_up > int(self._balance.is_up(index)):
            self._check_same(info)
        self.info = info
        self._limits[index] = limits
        self._balance.mark_up(index)
        self._announce()

    def replica_down(self, index: int) -> None:
        if self._balance.is_up(index):
            self._balance.mark_down(index)
            self._announce()

    def _check_expected(self, info: ModelInfo) -> None:
        expected = self._expected
        if info.task != "embed":
            raise RefusedError(f"its task is {info.task!r}, not 'embed'")
        if _last_component(info.name) != _last_component(expected.name):
            raise RefusedError(f"it serves {info.name!r}, the gateway {expected.name!r}")
        for name in ("vocab_size", "max_tokens"):
            theirs, ours = getattr(info, name), getattr(expected, name)
            if theirs != ours:
                raise RefusedError(f"its {name} is {theirs}, the gateway's {ours}")

    def _check_same(self, info: ModelInfo) -> None:
        assert self.info is not None, "a replica is up without info: this is a bug"
        for field in fields(ModelInfo):
            theirs, others = getattr(info, field.name), getattr(self.info, field.name)
            # The name may differ in how it was given; the device may differ freely.
            if field.name not in ("name", "device") and theirs != others:
                raise RefusedError(f"its {field.name} is {theirs}, the other replicas' {others}")

    def _announce(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # What requests ask.

    async def wait_for_info(self, deadline: float) -> ModelInfo:
        """Info of the replicas in use; waits for the first contact."""
        give_up = self._give_up_time(deadline)
        while self.info is None:
            await self._wait_for_change(give_up)
        return self.info

    def chunk_size(self) -> tuple[int, int]:
        """(tokens, sequences) that a chunk may have on every replica seen so far."""
        limits = self._limits.values()
        return (
            min(min(x.max_step_tokens, x.max_item_tokens) for x in limits),
            min(min(x.max_step_sequences, x.max_item_sequences) for x in limits),
        )

    async def embed(self, batch: RaggedBatch, output: OutputSpec, deadline: float) -> pb.Rows:
        """Rows of one chunk from whichever replica can give them.

        A chunk whose replica fails is sent to another one: the work is idempotent. At most
        `max_attempts` times, so that a chunk that brings replicas down does not bring down all.

        Args:
            batch: within `chunk_size`, or a single sequence.
            output: what the rows shall be.
            deadline: event loop time; what is left travels with the item.

        Raises:
            HotbedError: OVERLOADED if every replica in use says so; UNAVAILABLE if none is there
                for `unavailable_wait_s`; all others as the replica gives them.
        """
        give_up = self._give_up_time(deadline)
        loop = asyncio.get_running_loop()
        tried: set[tuple[int, int]] = set()
        num_failures = 0
        overloaded: HotbedError | None = None
        while True:
            lease = self._balance.pick(batch.num_tokens, tried)
            if lease is None:
                if overloaded is not None:
                    raise overloaded
                await self._wait_for_change(give_up)
                continue
            timeout_ms = max(1, int((deadline - loop.time()) * 1000))
            try:
                replica = self.replicas[lease.replica]
                return await replica.embed(batch, output, timeout_ms=timeout_ms)
            except HotbedError as error:
                tried.add(lease.key)
                if error.code is ErrorCode.OVERLOADED:
                    overloaded = error
                elif error.code is ErrorCode.UNAVAILABLE:
                    num_failures += 1
                    if num_failures >= self._settings.max_attempts:
                        raise
                    self._metrics.process.retries.inc()
                    give_up = self._give_up_time(deadline)
                else:
                    raise
            finally:
                self._balance.release(lease)

    def _give_up_time(self, deadline: float) -> float:
        now = asyncio.get_running_loop().time()
        return min(deadline, now + self._settings.unavailable_wait_s)

    async def _wait_for_change(self, give_up: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(give_up):
                await self._changed.wait()
                return
        counts = Counter(replica.state for replica in self.replicas)
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        raise HotbedError(
            ErrorCode.UNAVAILABLE,
            f"No replica can take the request ({states}). Try again later.",
            retry_after_s=RETRY_AFTER_S,
        )


def _last_component(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].lower()
