"""Messages over a Unix socket: each has its length before it, four bytes, little-endian.

The same `StreamRequest` and `StreamReply` as over gRPC, for two processes of one machine: there a
gRPC message costs each end some 30 µs of its event loop and as much again in gRPC's own threads
(`bench.rpc_front`).
"""

from __future__ import annotations

import asyncio
import contextlib

from hotbed.wire.limits import MAX_MESSAGE_BYTES

_LENGTH_BYTES = 4
READ_AHEAD_BYTES = 1 << 20
"""Held for a reader that is not reading; past it the other end is not read from."""


class FramedStream:
    """One end of a connection.

    Args:
        reader: of asyncio, with READ_AHEAD_BYTES as its limit.
        writer: its other half.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, path: str) -> FramedStream:
        """Raises OSError if nobody listens there."""
        return cls(*await asyncio.open_unix_connection(path, limit=READ_AHEAD_BYTES))

    async def read(self) -> bytes | None:
        """The next message; None once the other end has gone between two of them.

        Raises:
            ConnectionError: it went in the middle of one, or sent what is no message.
        """
        try:
            head = await self._reader.readexactly(_LENGTH_BYTES)
            length = int.from_bytes(head, "little")
            if length > MAX_MESSAGE_BYTES:
                raise ConnectionError(
                    f"a message of {length} bytes, the limit is {MAX_MESSAGE_BYTES}"
                )
            return await self._reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            if error.expected == _LENGTH_BYTES and not error.partial:
                return None
            raise ConnectionError("the other end went in the middle of a message") from None

    async def write(self, message: bytes) -> None:
        """Returns once there is room for more.

        Raises:
            ConnectionError: the other end is gone.
        """
        self._writer.writelines((len(message).to_bytes(_LENGTH_BYTES, "little"), message))
        await self._writer.drain()

    def close(self) -> None:
        """Both ways; what was written is still sent."""
        self._writer.close()

    async def wait_closed(self) -> None:
        """Return once it is closed, by either end."""
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
