"""The stream to a replica of this machine, without gRPC, with the face of a gRPC call."""

from __future__ import annotations

from grpc.aio import EOF  # type: ignore[attr-defined]

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.framed import FramedStream
from hotbed.wire.limits import FRAMED_SUFFIX

_UNIX = "unix:"


def can_be_local(address: str, info: pb.InfoReply) -> bool:
    """Whether the replica at the address takes its stream that way."""
    return info.local_stream and address.startswith(_UNIX)


class LocalCall:
    """An open stream; `open` makes one."""

    def __init__(self, framed: FramedStream) -> None:
        self._framed = framed

    @classmethod
    async def open(cls, address: str) -> LocalCall:
        """Raises HotbedError UNAVAILABLE if the replica does not listen."""
        try:
            return cls(await FramedStream.connect(address.removeprefix(_UNIX) + FRAMED_SUFFIX))
        except OSError as error:
            raise _gone(error) from error

    async def write(self, message: pb.StreamRequest) -> None:
        """Raises HotbedError UNAVAILABLE if the replica is gone."""
        try:
            await self._framed.write(message.SerializeToString())
        except OSError as error:
            raise _gone(error) from error

    async def read(self) -> object:
        """The next `StreamReply`, or grpc.aio.EOF; raises HotbedError UNAVAILABLE."""
        try:
            message = await self._framed.read()
        except OSError as error:
            raise _gone(error) from error
        return EOF if message is None else pb.StreamReply.FromString(message)

    def cancel(self) -> None:
        """End it both ways."""
        self._framed.close()


def _gone(error: OSError) -> HotbedError:
    return HotbedError(ErrorCode.UNAVAILABLE, f"the local stream: {error}")
