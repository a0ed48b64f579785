"""A batch over the replicas: cut into chunks, each to a replica, rows in the batch's order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.model_info import ModelInfo
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.rows import RowSet
from hotbed.ivy.bounded import map_bounded
from hotbed.ivy.caller import Caller
from hotbed.ivy.chunks import Chunk, ChunkCalls, ChunkRows
from hotbed.ivy.pool import ReplicaPool
from hotbed.text.split import split
from hotbed.wire.errors import RETRY_AFTER_S
from hotbed.wire.limits import MAX_ANSWER_BYTES


@dataclass(frozen=True, slots=True)
class SpreadRows:
    """What the replicas gave.

    Attributes:
        rows: arrays [n, row width], n in all the rows of the batch; read-only.
        fingerprint: of the model that made them all.
        queue_us: longest wait of a chunk in a replica's queue.
        device_us: device time of all chunks together.
        step_us: of the chunk that took longest.
    """

    rows: list[NDArray[Any]]
    fingerprint: str
    queue_us: int
    device_us: int
    step_us: int

    @property
    def num_chunks(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class SpreadOutputs:
    """The same for a spec that is not plain; `sets` has one for each of its outputs."""

    sets: list[RowSet]
    num_chunks: int
    fingerprint: str
    queue_us: int
    device_us: int
    step_us: int


async def spread(
    pool: ReplicaPool,
    batch: RaggedBatch,
    spec: OutputSpec,
    *,
    row_width: int,
    caller: Caller,
    max_chunks_per_replica: int,
) -> SpreadRows:
    """Rows of the batch's sequences.

    Args:
        pool: of replicas whose info is known.
        batch: at least one sequence.
        spec: what the rows shall be.
        row_width: elements in a row of that spec.
        caller: who asks.
        max_chunks_per_replica: in flight at a time, for each replica that is up.

    Raises:
        HotbedError: what the replicas say, naming sequences as ``input[i]``; OVERLOADED, before
            anything travels, if too many tokens are pending; UNAVAILABLE if the replicas changed to
            another model on the way.
    """
    calls = ChunkCalls(pool, spec, row_width=row_width, caller=caller)
    limit = max_chunks_per_replica * max(1, pool.num_up)
    with pool.pending.hold(batch.num_tokens, caller.tenant):
        answers = await map_bounded(calls.embed, _cut(batch, pool), limit=limit)
    if len(answers) == 1:  # the commonest case
        answer = answers[0]
        assert len(answer.rows) == batch.num_rows, "rows and inputs differ in number: a bug"
        device_us = answer.device_us
        return SpreadRows([answer.rows], answer.fingerprint, answer.queue_us, device_us, device_us)
    num_rows = sum(len(answer.rows) for answer in answers)
    assert num_rows == batch.num_rows, "rows and inputs differ in number: this is a bug"
    return SpreadRows(
        rows=[answer.rows for answer in answers],
        fingerprint=_common_fingerprint(answers),
        queue_us=max(answer.queue_us for answer in answers),
        device_us=sum(answer.device_us for answer in answers),
        step_us=max(answer.device_us for answer in answers),
    )


async def spread_outputs(
    pool: ReplicaPool,
    batch: RaggedBatch,
    spec: OutputSpec,
    *,
    info: ModelInfo,
    caller: Caller,
    max_chunks_per_replica: int,
) -> SpreadOutputs:
    """The same for a spec that is not plain; chunks are cut so that their answers fit a message."""
    widths = tuple(info.row_width(one) for one in spec.each())
    calls = ChunkCalls(pool, spec, row_width=widths, caller=caller)
    limit = max_chunks_per_replica * max(1, pool.num_up)
    # Half of an answer for what each token gives, half for what each sequence gives.
    of_token = sum(info.answer_bytes(one, 1, 0) for one in spec.each())
    of_sequence = sum(info.answer_bytes(one, 0, 1) for one in spec.each())
    max_tokens = MAX_ANSWER_BYTES // 2 // max(of_token, 1)
    max_sequences = MAX_ANSWER_BYTES // 2 // max(of_sequence, 1)
    with pool.pending.hold(batch.num_tokens):
        chunks = _cut(batch, pool, max_tokens=max_tokens, max_sequences=max_sequences)
        answers = await map_bounded(calls.embed, chunks, limit=limit)
    return SpreadOutputs(
        sets=[RowSet.concatenate(sets) for sets in zip(*(a.sets for a in answers), strict=True)],
        num_chunks=len(answers),
        fingerprint=_common_fingerprint(answers),
        queue_us=max(answer.queue_us for answer in answers),
        device_us=sum(answer.device_us for answer in answers),
        step_us=max(answer.device_us for answer in answers),
    )


def check_request_tokens(
    num_tokens: int, limit: int, field: str, *, whose: str = "max_request_tokens"
) -> None:
    """Raises TOO_LARGE past a limit on a request, by default the gateway's."""
    if num_tokens > limit:
        raise HotbedError(
            ErrorCode.TOO_LARGE,
            f"The inputs have {num_tokens} tokens together; the limit is {limit} a request "
            f"({whose}).",
            param=field,
        )


def _cut(
    batch: RaggedBatch,
    pool: ReplicaPool,
    *,
    max_tokens: int | None = None,
    max_sequences: int | None = None,
) -> list[Chunk]:
    """Chunks of the pool's size, or smaller ones."""
    if batch.num_sequences == 1:
        return [Chunk(0, batch)]
    of_pool = pool.chunk_size()
    max_tokens = max(1, min(of_pool[0], max_tokens or of_pool[0]))
    max_sequences = max(1, min(of_pool[1], max_sequences or of_pool[1]))
    # A replica counts rows: of a document in chunks there are more than sequences.
    counts = None if batch.spans is None else batch.spans.counts
    spans = split(batch.lengths, max_tokens=max_tokens, max_sequences=max_sequences, counts=counts)
    if len(spans) == 1:
        return [Chunk(0, batch)]
    return [Chunk(start, batch.slice(start, stop)) for start, stop in spans]


def _common_fingerprint(answers: list[ChunkRows]) -> str:
    """The fingerprint all chunks of a request share."""
    fingerprints = {answer.fingerprint for answer in answers}
    if len(fingerprints) > 1:
        raise HotbedError(
            ErrorCode.UNAVAILABLE,
            "The replicas changed to another model while this request ran, and rows of two models "
            "are not mixed. Send it again.",
            retry_after_s=RETRY_AFTER_S,
        )
    return fingerprints.pop()
