"""All replicas of an Ivy process: which are used, who gets which chunk, what happens on failure."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.model_info import ModelInfo
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.ivy.addresses import is_fixed
from hotbed.ivy.balance import Balance, Lease
from hotbed.ivy.caller import Caller
from hotbed.ivy.expected import ExpectedModel, RefusedError, check_same
from hotbed.ivy.hedge import Hedging, race
from hotbed.ivy.link import Link
from hotbed.ivy.metrics import ModelMetrics
from hotbed.ivy.pending import PendingTokens
from hotbed.ivy.replica import Replica
from hotbed.ivy.resolve import resolve
from hotbed.ivy.settings import IvySettings
from hotbed.ivy.tracing import ChunkTrace
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.errors import RETRY_AFTER_S
from hotbed.wire.limits import Limits

logger = logging.getLogger(__name__)

# What says that something is wrong with the replica, not with the request or the load.
_FAILURES = (ErrorCode.UNAVAILABLE, ErrorCode.INTERNAL)


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
        self.pending = PendingTokens(settings.max_pending_tokens)
        self._settings = settings
        self._expected = expected
        self._metrics = metrics
        self._link = Link.of(settings)
        self._entries = tuple(addresses)
        self._limits: dict[int, Limits] = {}
        self._balance = Balance(
            slow_start_s=settings.slow_start_s,
            eject_after=settings.eject_after_failures,
            ejection_s=settings.ejection_s,
        )
        self._hedging = Hedging() if settings.hedge else None
        self._changed = asyncio.Event()
        self._by_index: dict[int, Replica] = {}
        self._num_added = 0
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._leaving: dict[asyncio.Task[None], Replica] = {}
        self._refresher: asyncio.Task[None] | None = None
        self._is_started = False
        for address in filter(is_fixed, self._entries):
            self._add(address)

    @property
    def replicas(self) -> list[Replica]:
        """All that are known now."""
        return list(self._by_index.values())

    @property
    def num_up(self) -> int:
        return self._balance.num_up

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._is_started = True
        for replica in self._by_index.values():
            self._run(replica)
        if not all(map(is_fixed, self._entries)):
            self._refresher = asyncio.create_task(self._refresh(), name="refresh replicas")

    async def close(self) -> None:
        """End all streams; items in flight get UNAVAILABLE."""
        if self._refresher is not None:
            self._refresher.cancel()
            await asyncio.gather(self._refresher, return_exceptions=True)
        for replica in (*self._by_index.values(), *self._leaving.values()):
            replica.close()
        await asyncio.gather(*self._tasks.values(), *self._leaving)

    def _add(self, address: str) -> None:
        index = self._num_added
        self._num_added += 1
        replica = Replica(
            index,
            address,
            owner=self,
            link=self._link,
            on_message=self._metrics.count_message,
        )
        self._by_index[index] = replica
        self._balance.add(index)
        self._metrics.set_replica(address, is_up=False, outstanding_tokens=0)
        if self._is_started:
            self._run(replica)

    def _run(self, replica: Replica) -> None:
        task = asyncio.create_task(replica.run(), name=f"replica {replica.address}")
        self._tasks[replica.index] = task

    def _remove(self, replica: Replica) -> None:
        """Send it nothing more; its stream ends once its items are answered."""
        del self._by_index[replica.index]
        self._limits.pop(replica.index, None)
        self._balance.remove(replica.index)
        self._metrics.forget_replica(replica.address)
        running = self._tasks.pop(replica.index)
        self._leaving[running] = replica
        running.add_done_callback(self._leaving.pop)
        replica.finish()
        asyncio.get_running_loop().call_later(self._settings.drain_timeout_s, replica.close)

    async def _refresh(self) -> None:
        """Follow DNS and files. What cannot be read changes nothing."""
        said = ""
        while True:
            try:
                addresses = await resolve(self._entries)
            except (OSError, ValueError) as error:
                # gaierror's own words name the host only through ours.
                message = f"cannot look up replicas of {self._expected.name}: {error}"
                if message != said:
                    logger.warning("%s", message)
                said = message
            else:
                said = ""
                self._set_addresses(addresses)
            await asyncio.sleep(self._settings.replica_refresh_s)

    def _set_addresses(self, addresses: Sequence[str]) -> None:
        known = {replica.address: replica for replica in self._by_index.values()}
        if set(known) == set(addresses):
            return
        for address in addresses:
            if address not in known:
                logger.info("replica %s is new", address)
                self._add(address)
        for address, replica in known.items():
            if address not in addresses:
                logger.info("replica %s is no longer listed", address)
                self._remove(replica)
        self._announce()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return once the condition holds; it is looked at whenever a replica comes or goes."""
        while not condition():
            await self._changed.wait()

    def update_metrics(self) -> None:
        self._metrics.set_pending_tokens(self.pending.held)
        for replica in self._by_index.values():
            self._metrics.set_replica(
                replica.address,
                is_up=self._balance.is_up(replica.index),
                outstanding_tokens=self._balance.outstanding(replica.index),
            )

    def outstanding(self, replica: Replica) -> int:
        """Tokens given to the replica and not answered yet."""
        return self._balance.outstanding(replica.index)

    def is_ejected(self, replica: Replica) -> bool:
        """Whether it is left out for a while because it failed."""
        return self._balance.is_ejected(replica.index, asyncio.get_running_loop().time())

    # What replicas tell (ReplicaOwner).

    def replica_up(self, index: int, info: ModelInfo, limits: Limits) -> None:
        if index not in self._by_index:
            raise RefusedError("it is no longer listed")
        self._expected.check(info)
        if self.num_up > int(self._balance.is_up(index)):
            assert self.info is not None, "a replica is up without info: this is a bug"
            check_same(info, self.info)
        self.info = info
        self._limits[index] = limits
        self._balance.mark_up(index, asyncio.get_running_loop().time())
        self._announce()

    def replica_down(self, index: int) -> None:
        if index in self._by_index and self._balance.is_up(index):
            self._balance.mark_down(index)
            self._announce()

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

    async def embed(self, batch: RaggedBatch, output: OutputSpec, caller: Caller) -> pb.Rows:
        """Rows of one chunk from whichever replica can give them.

        A chunk whose replica fails is sent to another one: the work is idempotent. At most
        `max_attempts` times, so that a chunk that brings replicas down does not bring down all.

        Args:
            batch: within `chunk_size`, or a single sequence.
            output: what the rows shall be.
            caller: who asks; what is left of the time, and the tenant, travel with the item.

        Raises:
            HotbedError: OVERLOADED if every replica in use says so; UNAVAILABLE if none is there
                for `unavailable_wait_s`; all others as the replica gives them.
        """
        give_up = self._give_up_time(caller.deadline)
        loop = asyncio.get_running_loop()
        tried: set[tuple[int, int]] = set()
        num_failures = 0
        overloaded: HotbedError | None = None
        while True:
            lease = self._balance.pick(batch.num_tokens, tried, loop.time())
            if lease is None:
                if overloaded is not None:
                    raise overloaded
                await self._wait_for_change(give_up)
                continue
            try:
                if self._hedging is None:
                    return await self._ask(lease, batch, output, caller)
                return await self._ask_two(self._hedging, lease, batch, output, caller)
            except HotbedError as error:
                tried.add(lease.key)
                if error.code is ErrorCode.OVERLOADED:
                    overloaded = error
                elif error.code is ErrorCode.UNAVAILABLE:
                    num_failures += 1
                    if num_failures >= self._settings.max_attempts:
                        raise
                    self._metrics.process.retries.inc()
                    give_up = self._give_up_time(caller.deadline)
                else:
                    raise

    async def _ask(
        self, lease: Lease, batch: RaggedBatch, output: OutputSpec, caller: Caller
    ) -> pb.Rows:
        """Rows from the replica of the lease, which is given back; its failures are counted."""
        now = asyncio.get_running_loop().time
        timeout_ms = max(1, int((caller.deadline - now()) * 1000))
        try:
            replica = self._by_index.get(lease.replica)
            if replica is None:  # it left between the pick and now
                raise HotbedError(ErrorCode.UNAVAILABLE, "A replica has left.", retry_after_s=1.0)
            with ChunkTrace(
                replica.address, num_tokens=batch.num_tokens, num_sequences=batch.num_sequences
            ) as trace:
                rows = await replica.embed(
                    batch,
                    output,
                    timeout_ms=timeout_ms,
                    tenant=caller.tenant,
                    traceparent=trace.traceparent,
                )
                trace.answered(rows)
        except HotbedError as error:
            if error.code in _FAILURES and self._balance.failed(lease, now()):
                self._metrics.process.ejections.inc()
                address = self._by_index[lease.replica].address
                logger.warning("replica %s fails: it is left out for a while", address)
            raise
        else:
            self._balance.succeeded(lease)
            return rows
        finally:
            self._balance.release(lease)

    async def _ask_two(
        self,
        hedging: Hedging,
        lease: Lease,
        batch: RaggedBatch,
        output: OutputSpec,
        caller: Caller,
    ) -> pb.Rows:
        """As `_ask`, and another replica as well if this one is slow."""
        now = asyncio.get_running_loop().time
        start, tokens = now(), batch.num_tokens
        wait_s = hedging.wait_s(tokens)
        asking = self._ask(lease, batch, output, caller)

        def ask_another() -> Coroutine[Any, Any, pb.Rows] | None:
            other = self._balance.pick(tokens, {lease.key}, now())
            if other is None:
                return None
            hedging.spend()
            self._metrics.process.hedges.inc()
            return self._ask(other, batch, output, caller)

        if wait_s is None:
            rows = await asking
        else:
            rows = await race(asking, ask_another, wait_s=wait_s)
        hedging.note(tokens, now() - start)
        return rows

    def _give_up_time(self, deadline: float) -> float:
        return min(deadline, asyncio.get_running_loop().time() + self._settings.unavailable_wait_s)

    async def _wait_for_change(self, give_up: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(give_up):
                await self._changed.wait()
                return
        counts = Counter(replica.state for replica in self._by_index.values())
        states = ", ".join(f"{count} {state}" for state, count in counts.items()) or "none listed"
        raise HotbedError(
            ErrorCode.UNAVAILABLE,
            f"No replica can take the request ({states}). Try again later.",
            retry_after_s=RETRY_AFTER_S,
        )
