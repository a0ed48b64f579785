"""The chunks of one request on their way through a queue that the request itself can fill."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from hotbed.core.errors import ErrorCode, HotbedError, shift_input_index
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.rows import RowSet
from hotbed.ivy.caller import Caller
from hotbed.ivy.pool import ReplicaPool
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.codec import decode_row_sets, decode_rows
from hotbed.wire.errors import RETRY_AFTER_S


@dataclass(frozen=True, slots=True)
class Chunk:
    """Inputs of a request that one replica computes.

    Attributes:
        start: index of the first one in the request.
        batch: their token ids.
    """

    start: int
    batch: RaggedBatch


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """What a replica gave for a chunk.

    Attributes:
        rows: [inputs of the chunk, row width], read-only; of the first output if there are `sets`.
        fingerprint: of the model that made them.
        queue_us: wait in the replica's queue.
        device_us: time on its device.
        sets: of a spec that is not plain: one for each output.
    """

    rows: NDArray[Any]
    fingerprint: str
    queue_us: int
    device_us: int
    sets: tuple[RowSet, ...] = ()


class ChunkCalls:
    """Calls for the chunks of one request.

    A request is refused as OVERLOADED with its first chunks or not at all: later, what fills the
    queue may be its own chunks, so a request that fits an idle server would fail on itself, and
    the work done so far would be thrown away. A refused chunk waits until another one of the
    request is answered, or for the time the replica says, and is sent again.

    Args:
        pool: of replicas.
        spec: what the rows shall be.
        row_width: elements in a row of that spec; of one that is not plain for each output.
        caller: who asks.
    """

    def __init__(
        self,
        pool: ReplicaPool,
        spec: OutputSpec,
        *,
        row_width: int | tuple[int, ...],
        caller: Caller,
    ) -> None:
        self._pool = pool
        self._spec = spec
        self._row_width = row_width
        self._caller = caller
        self._num_in_flight = 0
        self._num_answered = 0
        self._answered = asyncio.Event()

    async def embed(self, chunk: Chunk) -> ChunkRows:
        """Rows of one chunk, one an input.

        Raises:
            HotbedError: as of `ReplicaPool.embed`, naming inputs by their place in the request;
                INTERNAL for rows of another number, width or type than asked for.
        """
        while True:
            self._num_in_flight += 1
            try:
                reply = await self._pool.embed(chunk.batch, self._spec, self._caller)
                rows = self._checked(reply, chunk)
            except HotbedError as error:
                is_first = self._num_in_flight == 1 and self._num_answered == 0
                if error.code is not ErrorCode.OVERLOADED or is_first:
                    raise shift_input_index(error, chunk.start) from None
                retry_after_s = error.retry_after_s or RETRY_AFTER_S
            else:
                self._num_answered += 1
                answered, self._answered = self._answered, asyncio.Event()
                answered.set()
                return rows
            finally:
                self._num_in_flight -= 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(retry_after_s):
                    await self._answered.wait()

    def _checked(self, reply: pb.Rows, chunk: Chunk) -> ChunkRows:
        if isinstance(self._row_width, tuple):
            return self._checked_sets(reply, chunk, self._row_width)
        rows = decode_rows(reply)
        expected = (chunk.batch.num_rows, self._row_width)
        if rows.shape != expected or rows.dtype != self._spec.dtype.numpy:
            raise HotbedError(
                ErrorCode.INTERNAL,
                f"A replica answered {rows.shape[0]} rows of {rows.shape[1]} {rows.dtype}, asked "
                f"for were {expected[0]} of {expected[1]} {self._spec.dtype.numpy}: this is a bug.",
            )
        timings = reply.timings
        return ChunkRows(rows, reply.fingerprint, timings.queue_us, timings.device_us)

    def _checked_sets(self, reply: pb.Rows, chunk: Chunk, widths: tuple[int, ...]) -> ChunkRows:
        sets = tuple(decode_row_sets(reply))
        specs = self._spec.each()
        asked = [
            (chunk.batch.num_sequences, width, spec.row_dtype, spec.kind == "dense")
            for width, spec in zip(widths, specs, strict=True)
        ]
        got = [(s.num_sequences, s.rows.shape[1], s.rows.dtype, s.counts is None) for s in sets]
        if got != asked:
            raise HotbedError(
                ErrorCode.INTERNAL,
                f"A replica answered outputs of {got}, asked for were {asked}: this is a bug.",
            )
        timings = reply.timings
        return ChunkRows(sets[0].rows, reply.fingerprint, timings.queue_us, timings.device_us, sets)
