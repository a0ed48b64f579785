"""One open stream: items in, results out, several to a message both ways.

A reader task submits whatever comes; the writer sleeps until something is answered and then sends
all that is there in one message (gateway bench, 2026-11-30: Tulip 435 to 53 µs an item at 64 in
flight, against one call an item).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

import grpc
from grpc.aio import EOF  # type: ignore[attr-defined]

from hotbed.core.errors import HotbedError, invalid
from hotbed.tulip import faults
from hotbed.tulip.door import admit, hand_out, tenant_of
from hotbed.tulip.loop import StepLoop
from hotbed.tulip.register import unreadable
from hotbed.tulip.work import Answer, Item
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.errors import error_to_proto
from hotbed.wire.limits import SOFT_MESSAGE_BYTES

MAX_UNSENT_BYTES = 64 * 1024 * 1024
"""Rows a client may leave unread before its stream is no longer read either."""

_ERROR_BYTES = 256

log = logging.getLogger(__name__)


class Connection(Protocol):
    """What a stream needs of the call, or of whatever carries its messages."""

    async def read(self) -> Any:
        """The next `StreamRequest`, None for a message that is none, or grpc.aio.EOF at the end of
        what the client sends.
        """
        ...

    async def write(self, reply: pb.StreamReply, /) -> None:
        """Returns once there is room for more."""
        ...


class Stream:
    """The server's end of one stream, from its start to its end.

    Args:
        connection: to the client.
        steps: where the items go.
    """

    def __init__(self, connection: Connection, steps: StepLoop) -> None:
        self._connection = connection
        self._steps = steps
        self._in_flight: dict[int, Item] = {}
        self._outbox: list[tuple[int, Answer | HotbedError]] = []
        self._unsent_bytes = 0
        self._being_sent_bytes = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._on_answer = self._answered
        self._is_ending = False
        self._violation: HotbedError | None = None
        self._failure: BaseException | None = None

    @property
    def num_unsent_bytes(self) -> int:
        """Of answers that wait for the client to read."""
        return self._unsent_bytes + self._being_sent_bytes

    async def run(self) -> None:
        """Serve the stream until the client closes it, is gone, or `end` was called.

        Raises:
            HotbedError: INVALID_INPUT if the client broke the rules of the stream.
            ConnectionError: it is gone, where the connection says so by that.
        """
        reader = asyncio.create_task(self._read())
        reader.add_done_callback(self._reader_done)
        try:
            await self._write()
            if self._violation is not None:
                raise self._violation
            if self._failure is not None:
                raise self._failure
        except grpc.aio.InternalError:
            # gRPC's word for a write to a client that has gone; its cancellation comes later.
            log.debug("a client went while it was being answered")
        finally:
            reader.cancel()
            for item in list(self._in_flight.values()):  # nobody is left to hear the answer
                self._steps.cancel(item)

    def end(self) -> None:
        """Finish the stream once everything in flight is answered and sent."""
        self._is_ending = True
        self._wake.set()

    def _reader_done(self, reader: asyncio.Task[None]) -> None:
        if not reader.cancelled():
            self._failure = reader.exception()
        self.end()

    async def _read(self) -> None:
        while True:
            await self._room.wait()
            request = await self._connection.read()
            if request is EOF:
                return
            if request is None:
                self._violation = unreadable("StreamRequest")
                return
            for message in request.items:
                if message.id in self._in_flight:
                    # Two answers to one id could not be told apart.
                    self._violation = invalid(
                        f"an item with id {message.id} is in flight already on this stream",
                        "items.id",
                    )
                    return
                self._submit(message)
            for tag in request.cancel:
                item = self._in_flight.get(tag)
                if item is not None:  # else it was answered while the cancel was on its way
                    self._steps.cancel(item)

    def _submit(self, message: pb.Item) -> None:
        limit = self._steps.limits.max_stream_items
        try:
            if len(self._in_flight) + len(self._outbox) >= limit:
                raise faults.stream_full(limit)
            batch, spec = admit(message.batch, message.output, self._steps.info)
            self._in_flight[message.id] = self._steps.submit(
                batch,
                spec,
                on_answer=self._on_answer,
                tag=message.id,
                timeout_s=message.timeout_ms / 1000 or None,
                client=tenant_of(message.tenant) or self,
                traceparent=message.traceparent,
            )
        except HotbedError as error:
            self._steps.count_refusal(error)
            self._put(message.id, error)

    def _answered(self, answer: Answer) -> None:
        del self._in_flight[answer.item.tag]
        self._put(answer.item.tag, answer)

    def _put(self, tag: int, outcome: Answer | HotbedError) -> None:
        self._outbox.append((tag, outcome))
        self._unsent_bytes += _size(outcome)
        if self._unsent_bytes > MAX_UNSENT_BYTES:
            self._room.clear()
        self._wake.set()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._violation is not None or self._failure is not None:
                return
            while self._outbox:
                outbox, self._outbox = self._outbox, []
                self._being_sent_bytes, self._unsent_bytes = self._unsent_bytes, 0
                await self._send(outbox)
                self._being_sent_bytes = 0
                if self._unsent_bytes <= MAX_UNSENT_BYTES:
                    self._room.set()
            if self._is_ending and not self._in_flight:
                return

    async def _send(self, outbox: list[tuple[int, Answer | HotbedError]]) -> None:
        reply, num_bytes = pb.StreamReply(), 0
        for tag, outcome in outbox:
            size = _size(outcome)
            if num_bytes and num_bytes + size > SOFT_MESSAGE_BYTES:
                await self._connection.write(reply)
                reply, num_bytes = pb.StreamReply(), 0
            num_bytes += size
            result = reply.results.add(id=tag)
            if isinstance(outcome, HotbedError):
                result.error.CopyFrom(error_to_proto(outcome))
            elif isinstance(outcome.result, HotbedError):
                result.error.CopyFrom(error_to_proto(outcome.result))
            else:
                hand_out(outcome, self._steps.info.fingerprint, into=result.rows)
        await self._connection.write(reply)


def _size(outcome: Answer | HotbedError) -> int:
    """About how many bytes the outcome takes in a message."""
    result = outcome.result if isinstance(outcome, Answer) else outcome
    if isinstance(result, HotbedError):
        return _ERROR_BYTES
    if isinstance(result, list):
        return sum(one.rows.nbytes for one in result) + _ERROR_BYTES
    return result.nbytes + _ERROR_BYTES
