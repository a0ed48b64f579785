"""A small async client for one Tulip replica, for other Python programs.

Takes token ids, not texts: tokenise with the served model's tokenizer first.

    async with TulipClient("127.0.0.1:50051") as client:
        info, limits = await client.info()
        embedding = await client.embed([[101, 7592, 102], [101, 2088, 102]], timeout_s=5)
        embedding.rows  # float32 [2, info.dimensions]

Each call is one unary RPC. Ivy, with many requests in flight, has a stream client of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import grpc
from numpy.typing import NDArray

from hotbed.core.errors import invalid
from hotbed.core.model_info import ModelInfo
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.rows import RowSet
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire import tulip_pb2_grpc as pb_grpc
from hotbed.wire.codec import decode_info, decode_row_sets, encode_output, encode_ragged
from hotbed.wire.errors import error_from_rpc
from hotbed.wire.limits import Limits, channel_options
from hotbed.wire.tls import ClientTls, open_channel


@dataclass(frozen=True, slots=True)
class Embedding:
    """Answer of one call.

    Attributes:
        rows: [S, row width] of the dtype asked for, read-only, in the order of the sequences; of
            an output with several rows a sequence all of them.
        sets: one for each output asked for, the first one's rows being `rows`.
        fingerprint: of the model that made them; rows of two fingerprints do not compare.
        queue_s: from acceptance to the start of the request's last step.
        device_s: from the start of its first step to its last result.
        total_s: from acceptance to the result.
    """

    rows: NDArray[Any]
    sets: tuple[RowSet, ...]
    fingerprint: str
    queue_s: float
    device_s: float
    total_s: float


class TulipClient:
    """One channel to one replica; make it inside a running event loop.

    Args:
        address: ``host:port`` or ``unix:/path``.
        tls: None: no TLS.

    Raises:
        OSError: a file of `tls` cannot be read.
    """

    def __init__(self, address: str, *, tls: ClientTls | None = None) -> None:
        self._channel = open_channel(address, channel_options(), tls)
        self._stub = pb_grpc.TulipStub(self._channel)  # type: ignore[no-untyped-call]

    async def embed(
        self,
        sequences: RaggedBatch | Sequence[Sequence[int]],
        output: OutputSpec | None = None,
        *,
        timeout_s: float | None = None,
        tenant: bytes = b"",
    ) -> Embedding:
        """Embed token ids.

        Args:
            sequences: S sequences of ids of the served model.
            output: recipe of the rows; None: the model's own float32.
            timeout_s: deadline of the call, honoured in the server's queue too.
            tenant: with whom the call takes turns; empty: with all of this address.

        Raises:
            HotbedError: whatever went wrong, here, on the way or there.
        """
        request = pb.EmbedRequest(tenant=tenant)
        encode_ragged(_ragged(sequences), into=request.batch)
        encode_output(output or OutputSpec(), into=request.output)
        try:
            reply: pb.EmbedReply = await self._stub.Embed(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from error
        timings = reply.rows.timings
        sets = decode_row_sets(reply.rows)
        return Embedding(
            rows=sets[0].rows,
            sets=tuple(sets),
            fingerprint=reply.rows.fingerprint,
            queue_s=timings.queue_us / 1e6,
            device_s=timings.device_us / 1e6,
            total_s=timings.total_us / 1e6,
        )

    async def info(self, *, timeout_s: float | None = None) -> tuple[ModelInfo, Limits]:
        """Facts of the served model and the replica's limits.

        Raises:
            HotbedError: whatever went wrong; UNAVAILABLE while the model is loading.
        """
        try:
            reply = await self._stub.Info(pb.InfoRequest(), timeout=timeout_s)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from error
        return decode_info(reply)

    async def close(self) -> None:
        """Close the channel; calls in flight are cancelled."""
        await self._channel.close(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def _ragged(sequences: RaggedBatch | Sequence[Sequence[int]]) -> RaggedBatch:
    if isinstance(sequences, RaggedBatch):
        return sequences
    try:
        return RaggedBatch.from_sequences(sequences)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(f"sequences must be lists of int32 token ids: {error}", "batch") from error
