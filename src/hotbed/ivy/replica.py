"""One replica: its connection, its one stream, the items in flight on it.

`run` keeps a session open until closed: Info, then at the same time the stream's writer and reader
and a watch of the health service. The writer puts all items queued when it wakes into one message.
When a session ends, however it ends, every item in flight gets UNAVAILABLE.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Literal, NoReturn, Protocol

import grpc
from grpc.aio import EOF  # type: ignore[attr-defined]
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.model_info import ModelInfo
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.ivy.expected import RefusedError
from hotbed.ivy.link import Link
from hotbed.ivy.local_call import LocalCall, can_be_local
from hotbed.ivy.shares import Shares
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.codec import decode_info, encode_output, encode_ragged
from hotbed.wire.errors import RETRY_AFTER_S, error_from_proto, error_from_rpc
from hotbed.wire.limits import SOFT_MESSAGE_BYTES, Limits
from hotbed.wire.tulip_pb2_grpc import TulipStub

logger = logging.getLogger(__name__)

State = Literal["connecting", "up", "not_serving", "refused", "down"]

SERVICE = pb.DESCRIPTOR.services_by_name["Tulip"].full_name
_MIN_BACKOFF_S = 0.05


class ReplicaOwner(Protocol):
    """Who is told of a replica's health."""

    def replica_up(self, index: int, info: ModelInfo, limits: Limits) -> None:
        """The replica says it serves. Raises RefusedError if it must not be used."""
        ...

    def replica_down(self, index: int) -> None:
        """The replica is not to be used now; also called when it was not up."""
        ...


class Replica:
    """The stream to one replica. All methods on the event loop that runs `run`."""

    def __init__(
        self,
        index: int,
        address: str,
        *,
        owner: ReplicaOwner,
        link: Link,
        on_message: Callable[[], None] = lambda: None,
    ) -> None:
        self.index = index
        self.address = address
        self.state: State = "connecting"
        self.reason = "not connected yet"
        self._owner = owner
        self._link = link
        self._on_message = on_message
        self._closing = asyncio.Event()
        self._is_finishing = False
        self._limits: Limits | None = None
        self._places = Shares(0)
        self._stub: Any = None
        self._next_id = 0
        # id -> who waits; None once nobody does, while the replica still owes the result.
        self._in_flight: dict[int, asyncio.Future[pb.Rows] | None] = {}
        self._queue: deque[pb.Item] = deque()
        self._cancels: list[int] = []
        self._wake = asyncio.Event()

    @property
    def num_in_flight(self) -> int:
        """Items queued or sent whose result has not come yet, also those nobody waits for."""
        return len(self._in_flight)

    async def embed(
        self,
        batch: RaggedBatch,
        output: OutputSpec,
        *,
        timeout_ms: int,
        tenant: bytes = b"",
        traceparent: str = "",
    ) -> pb.Rows:
        """Rows of one item.

        Cancelling the call takes the item out of the queue, here or at the replica.

        Raises:
            HotbedError: what the replica says; UNAVAILABLE if there is no session or it ends
                before the result; OVERLOADED if too many items are in flight.
        """
        limits, places = self._limits, self._places
        if limits is None:
            raise self._unavailable()
        # Items that nobody waits for count until the replica has answered them.
        if len(self._in_flight) >= limits.max_stream_items or not places.take(tenant):
            raise HotbedError(
                ErrorCode.OVERLOADED,
                f"{len(self._in_flight)} items are in flight to one replica, its limit is "
                f"{limits.max_stream_items}. Try again later.",
                retry_after_s=RETRY_AFTER_S,
            )
        item_id = self._next_id
        self._next_id += 1
        future: asyncio.Future[pb.Rows] = asyncio.get_running_loop().create_future()
        self._in_flight[item_id] = future
        self._queue.append(
            pb.Item(
                id=item_id,
                batch=encode_ragged(batch),
                output=encode_output(output),
                timeout_ms=timeout_ms,
                tenant=tenant,
                traceparent=traceparent,
            )
        )
        self._wake.set()
        try:
            return await future
        except asyncio.CancelledError:
            self._abandon(item_id)
            raise
        finally:
            places.give_back(tenant)

    async def stats(self, *, timeout_s: float) -> pb.StatsReply | None:
        """What the replica says of its load; None if it does not say so in time."""
        if self._stub is None:
            return None
        try:
            reply: pb.StatsReply = await self._stub.Stats(pb.StatsRequest(), timeout=timeout_s)
        except grpc.RpcError:  # late, gone, or of a version that does not know the call
            return None
        return reply

    def _abandon(self, item_id: int) -> None:
        if item_id in self._in_flight:
            self._in_flight[item_id] = None
            self._cancels.append(item_id)
            self._wake.set()

    async def run(self) -> None:
        """Connect, serve, connect again, until `close`."""
        failures = 0
        while not self._closing.is_set():
            was_up = False
            try:
                await _until_first_ends(self._session(), self._wait_for_close())
            except RefusedError as error:
                self._end("refused", str(error))
            except grpc.RpcError as error:
                was_up = self.state in ("up", "not_serving")
                details = error.details() if isinstance(error, grpc.aio.AioRpcError) else ""
                self._end("down", f"{error_from_rpc(error).message} ({details})")
            except HotbedError as error:
                was_up = self.state in ("up", "not_serving")
                self._end("down", error.message)
            except Exception:
                logger.exception("replica %s: the session failed: this is a bug", self.address)
                self._end("down", "a fault in the gateway, see its log")
            failures = 1 if was_up else failures + 1
            await self._pause(failures)

    async def _pause(self, failures: int) -> None:
        """Wait before the next attempt: doubling, with jitter so that workers do not march."""
        longest = min(self._link.max_backoff_s, _MIN_BACKOFF_S * 2 ** min(failures - 1, 16))
        try:
            async with asyncio.timeout(longest * random.uniform(0.5, 1.0)):  # noqa: S311
                await self._closing.wait()
        except TimeoutError:
            pass

    def close(self) -> None:
        """Let `run` return soon; items in flight get UNAVAILABLE."""
        self._closing.set()

    def finish(self) -> None:
        """As `close`, once the items in flight are answered."""
        self._is_finishing = True
        if not self._in_flight:
            self.close()

    async def _session(self) -> None:
        try:
            opened = self._link.open(self.address)
        except OSError as error:
            raise HotbedError(ErrorCode.UNAVAILABLE, f"its TLS: {error}") from error
        async with opened as channel:
            stub = TulipStub(channel)  # type: ignore[no-untyped-call]
            reply = await stub.Info(pb.InfoRequest(), timeout=self._link.connect_timeout_s)
            info, limits = decode_info(reply)
            is_local = can_be_local(self.address, reply)
            call = await LocalCall.open(self.address) if is_local else stub.Stream()
            self._limits, self._places = limits, Shares(limits.max_stream_items)
            self._stub = stub
            try:
                await _until_first_ends(
                    self._write(call),
                    self._read(call),
                    self._watch(channel, info, limits),
                )
            finally:
                call.cancel()

    async def _wait_for_close(self) -> None:
        await self._closing.wait()
        raise HotbedError(ErrorCode.UNAVAILABLE, "the gateway is stopping")

    async def _write(self, call: Any) -> NoReturn:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue or self._cancels:
                message = self._take_message()
                if message.items or message.cancel:
                    self._on_message()
                    try:
                        await call.write(message)
                    except asyncio.InvalidStateError:
                        raise _stream_ended() from None

    def _take_message(self) -> pb.StreamRequest:
        items: list[pb.Item] = []
        num_bytes = 0
        while self._queue and num_bytes < SOFT_MESSAGE_BYTES:
            item = self._queue.popleft()
            if self._in_flight[item.id] is None:
                # Nobody waits any more and the replica never heard of it.
                del self._in_flight[item.id]
                continue
            num_bytes += len(item.batch.token_ids)
            items.append(item)
        cancels = [i for i in self._cancels if i in self._in_flight]
        self._cancels.clear()
        return pb.StreamRequest(items=items, cancel=cancels)

    async def _read(self, call: Any) -> NoReturn:
        while True:
            reply = await call.read()
            if reply is EOF:
                raise _stream_ended()
            for result in reply.results:
                future = self._in_flight.pop(result.id, None)
                if future is None or future.done():
                    continue
                if result.HasField("rows"):
                    future.set_result(result.rows)
                else:
                    future.set_exception(error_from_proto(result.error))
            if self._is_finishing and not self._in_flight:
                self.close()

    async def _watch(self, channel: Any, info: ModelInfo, limits: Limits) -> NoReturn:
        request = health_pb2.HealthCheckRequest(service=SERVICE)
        call = health_pb2_grpc.HealthStub(channel).Watch(request)
        while True:
            reply = await call.read()
            if reply is EOF:
                raise HotbedError(ErrorCode.UNAVAILABLE, "the replica ended the health watch")
            if reply.status == health_pb2.HealthCheckResponse.SERVING:
                self._owner.replica_up(self.index, info, limits)
                self._set_state("up", "")
            else:
                # Items in flight may still be answered: a replica that drains does so.
                name = health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)
                self._owner.replica_down(self.index)
                self._set_state("not_serving", f"its health service says {name}")

    def _end(self, state: State, reason: str) -> None:
        self._owner.replica_down(self.index)
        self._set_state(state, reason)
        self._limits = self._stub = None
        self._queue.clear()
        self._cancels.clear()
        waiting, self._in_flight = self._in_flight, {}
        for future in waiting.values():
            if future is not None and not future.done():
                future.set_exception(self._unavailable())

    def _set_state(self, state: State, reason: str) -> None:
        if (state, reason) == (self.state, self.reason):
            return
        level = logging.INFO if state == "up" or self._closing.is_set() else logging.WARNING
        why = f": {reason}" if reason else ""
        logger.log(level, "replica %s is %s%s", self.address, state, why)
        self.state = state
        self.reason = reason

    def _unavailable(self) -> HotbedError:
        return HotbedError(
            ErrorCode.UNAVAILABLE,
            f"A replica is not available: {self.state}.",
            retry_after_s=RETRY_AFTER_S,
        )


def _stream_ended() -> HotbedError:
    return HotbedError(ErrorCode.UNAVAILABLE, "the replica ended the stream")


async def _until_first_ends(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends, stop the others, raise what the first to end raised."""
    tasks = [asyncio.ensure_future(c) for c in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for task, outcome in zip(tasks, outcomes, strict=True):
        if task in done and isinstance(outcome, BaseException):
            raise outcome
