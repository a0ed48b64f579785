"""Streams of gateways on this machine, over a Unix socket without gRPC (`hotbed.wire.framed`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from google.protobuf.message import DecodeError

from hotbed.core.errors import HotbedError
from hotbed.tulip.stream import Connection
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.framed import READ_AHEAD_BYTES, FramedStream

log = logging.getLogger(__name__)

ServeStream = Callable[[Connection], Awaitable[None]]


class _Local:
    """Implements `hotbed.tulip.stream.Connection`."""

    def __init__(self, framed: FramedStream) -> None:
        self._framed = framed

    async def read(self) -> object:
        message = await self._framed.read()
        if message is None:
            # Such a client never closes one way only: it is gone, and so is who waits.
            raise ConnectionError("the gateway has gone")
        try:
            return pb.StreamRequest.FromString(message)
        except DecodeError as error:
            raise ConnectionError(f"what came is no message: {error}") from None

    async def write(self, reply: pb.StreamReply) -> None:
        await self._framed.write(reply.SerializeToString())


class LocalServer:
    """Listens at a path, from `start` to `close`.

    Args:
        path: of the socket.
        serve_stream: serves one connection to its end.
    """

    def __init__(self, path: Path, serve_stream: ServeStream) -> None:
        self._path = path
        self._serve_stream = serve_stream
        self._connected: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Raises OSError if the path cannot be bound; a socket that a dead process left is."""
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(
            self._connection, self._path, limit=READ_AHEAD_BYTES
        )

    async def close(self, grace_s: float) -> None:
        """Take no more connections; those that are open end by themselves or after the grace."""
        self._server.close()
        if self._connected:
            await asyncio.wait(self._connected, timeout=grace_s)
        for task in self._connected:
            task.cancel()
        await asyncio.gather(*self._connected, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio runs this as a task"
        self._connected.add(task)
        framed = FramedStream(reader, writer)
        try:
            await self._serve_stream(_Local(framed))
        except HotbedError as error:
            log.warning("a local stream is closed: %s", error.message)
        except ConnectionError as error:
            log.debug("a local stream ended: %s", error)
        except asyncio.CancelledError:
            pass  # `close` ends it; asyncio would log the cancellation of a connection's task
        finally:
            self._connected.discard(task)
            with contextlib.suppress(RuntimeError):  # the event loop may be closed by then
                framed.close()
