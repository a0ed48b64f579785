"""Batches and facts to and from the proto messages: arrays travel as bytes, nothing a token at a
time. Those of outputs and rows are made in `hotbed.wire.output_codec`.

What a client sends is checked here for form (lengths, enums) and fails as INVALID_INPUT that names
the message's field; whether ids, lengths and dimensions suit the model is Tulip's question. What a
server answers is checked as well and fails as INTERNAL. Decoded arrays are read-only views of the
message's bytes. Legend: T tokens, S sequences.

The encoders fill a message that is given, such as the field of a larger one: protobuf copies a
message that is assigned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, get_args

import numpy as np

from hotbed.core.errors import ErrorCode, HotbedError, invalid
from hotbed.core.model_info import Activation, ModelInfo, Task
from hotbed.core.output import OutputKind
from hotbed.core.ragged import Int32Array, RaggedBatch, Spans
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.limits import Limits
from hotbed.wire.output_codec import (
    KIND_FROM_PB,
    KIND_TO_PB,
    decode_output,
    decode_row_sets,
    decode_rows,
    encode_output,
    encode_row_sets,
    encode_rows,
    int32_view,
)

__all__ = [
    "decode_info",
    "decode_output",
    "decode_ragged",
    "decode_row_sets",
    "decode_rows",
    "encode_info",
    "encode_output",
    "encode_ragged",
    "encode_row_sets",
    "encode_rows",
]

_T = TypeVar("_T")
_TASKS: tuple[Task, ...] = get_args(Task)
_ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
_INT32_LE = np.dtype("<i4")


def encode_ragged(batch: RaggedBatch, into: pb.Ragged | None = None) -> pb.Ragged:
    """The batch as byte fields of a new message, or of an empty one that is given."""
    message = pb.Ragged() if into is None else into
    message.token_ids = batch.token_ids.astype(_INT32_LE, copy=False).tobytes()
    message.lengths = batch.lengths.astype(_INT32_LE, copy=False).tobytes()
    if batch.spans is not None:
        message.span_counts = batch.spans.counts.astype(_INT32_LE, copy=False).tobytes()
        message.span_bounds = batch.spans.bounds.astype(_INT32_LE, copy=False).tobytes()
    if batch.pair_starts is not None:
        message.pair_starts = batch.pair_starts.astype(_INT32_LE, copy=False).tobytes()
    return message


def decode_ragged(message: pb.Ragged) -> RaggedBatch:
    """The batch a message holds; its token ids are a read-only view of the message's bytes.

    Raises:
        HotbedError: INVALID_INPUT if there is no sequence, a field is not whole int32s, a length
            is below 1, the lengths do not sum to the tokens, spans or pair starts do not fit them,
            or both are given.
    """
    batch = _decode_sequences(message)
    if not message.span_counts and not message.span_bounds:
        return batch
    if batch.pair_starts is not None:
        raise invalid(
            "batch.span_counts and batch.pair_starts must not both be given: rows of spans are "
            "vectors, a pair gives one row of scores",
            "batch.span_counts",
        )
    counts = int32_view(message.span_counts, "batch.span_counts")
    bounds = int32_view(message.span_bounds, "batch.span_bounds")
    if len(bounds) != 2 * int(counts.sum(dtype=np.int64)):
        raise invalid(
            f"batch.span_counts sum to {int(counts.sum(dtype=np.int64))}, batch.span_bounds holds "
            f"{len(bounds)} numbers, not two a span",
            "batch.span_counts",
        )
    cu_spans = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=cu_spans[1:])
    try:
        spans = Spans(bounds.reshape(-1, 2), cu_spans)
        return RaggedBatch(batch.token_ids, batch.cu_seqlens, spans=spans)
    except ValueError as error:
        raise invalid(f"batch.span_bounds: {error}", "batch.span_bounds") from error


def _decode_sequences(message: pb.Ragged) -> RaggedBatch:
    token_ids = int32_view(message.token_ids, "batch.token_ids")
    lengths = int32_view(message.lengths, "batch.lengths")
    if len(lengths) == 0:
        raise invalid("batch.lengths is empty: a request needs at least 1 sequence", "batch")
    if len(lengths) == 1:  # the commonest case, without five small array operations
        if lengths[0] != len(token_ids) or len(token_ids) == 0:
            raise _bad_lengths(lengths, len(token_ids))
        return RaggedBatch(
            token_ids,
            np.array((0, len(token_ids)), dtype=np.int32),
            pair_starts=_decode_pair_starts(message.pair_starts, lengths),
        )
    if int(lengths.min()) < 1 or int(lengths.sum(dtype=np.int64)) != len(token_ids):
        raise _bad_lengths(lengths, len(token_ids))
    pair_starts = _decode_pair_starts(message.pair_starts, lengths)
    return RaggedBatch.from_lengths(token_ids, lengths, pair_starts)


def encode_info(info: ModelInfo, limits: Limits, version: str) -> pb.InfoReply:
    """Model facts, limits and Hotbed's version as a message."""
    return pb.InfoReply(
        model=info.name,
        task=info.task,
        architecture=info.architecture,
        dimensions=info.dimensions,
        max_tokens=info.max_tokens,
        vocab_size=info.vocab_size,
        pooling=info.pooling,
        normalize=info.normalize,
        dtype=info.dtype,
        device=info.device,
        fingerprint=info.fingerprint,
        limits=pb.Limits(
            max_step_tokens=limits.max_step_tokens,
            max_step_sequences=limits.max_step_sequences,
            max_queue_tokens=limits.max_queue_tokens,
            max_item_sequences=limits.max_item_sequences,
            max_item_tokens=limits.max_item_tokens,
            max_stream_items=limits.max_stream_items,
        ),
        version=version,
        labels=info.labels,
        activation=info.activation,
        token_types=info.token_types,
        outputs=[pb.OutputWidth(kind=KIND_TO_PB[k], width=w) for k, w in info.outputs],
    )


def decode_info(message: pb.InfoReply) -> tuple[ModelInfo, Limits]:
    """Model facts and limits a message holds.

    Raises:
        HotbedError: INTERNAL if a count that must be at least 1 is 0, or the task or activation is
            unknown: the server is at fault.
    """
    info = ModelInfo(
        name=message.model,
        task=_known("task", message.task, _TASKS),
        architecture=message.architecture,
        dimensions=message.dimensions,
        max_tokens=message.max_tokens,
        vocab_size=message.vocab_size,
        pooling=message.pooling,
        normalize=message.normalize,
        dtype=message.dtype,
        device=message.device,
        fingerprint=message.fingerprint,
        labels=tuple(message.labels),
        # Empty and 0 are what a replica of an earlier version says.
        activation=_known("activation", message.activation or "none", _ACTIVATIONS),
        token_types=message.token_types or 1,
        outputs=tuple(_known_outputs(message)),
    )
    limits = Limits(
        max_step_tokens=message.limits.max_step_tokens,
        max_step_sequences=message.limits.max_step_sequences,
        max_queue_tokens=message.limits.max_queue_tokens,
        max_item_sequences=message.limits.max_item_sequences,
        max_item_tokens=message.limits.max_item_tokens,
        max_stream_items=message.limits.max_stream_items,
    )
    counts = {
        "dimensions": info.dimensions,
        "max_tokens": info.max_tokens,
        "vocab_size": info.vocab_size,
        **{f"limits.{name}": getattr(limits, name) for name in Limits.__slots__},
    }
    for name, value in counts.items():
        if value < 1:
            raise HotbedError(ErrorCode.INTERNAL, f"info.{name} must be at least 1, got {value}")
    return info, limits


def _decode_pair_starts(data: bytes, lengths: Int32Array) -> Int32Array | None:
    if not data:
        return None
    field = "batch.pair_starts"
    starts = int32_view(data, field)
    if len(starts) != len(lengths):
        raise invalid(f"{field} holds {len(starts)} values for {len(lengths)} sequences", field)
    outside = (starts < 0) | (starts > lengths)
    if bool(outside.any()):
        index = int(np.argmax(outside))
        raise invalid(
            f"{field}[{index}] is {int(starts[index])}: it must be 0 to the {int(lengths[index])} "
            "tokens of its sequence",
            f"input[{index}]",
        )
    return starts


def _known_outputs(message: pb.InfoReply) -> Iterator[tuple[OutputKind, int]]:
    """Those that this version knows of: a newer replica may have others beside them."""
    for output in message.outputs:
        kind = KIND_FROM_PB.get(output.kind)
        if kind is not None:
            if output.width < 1:
                raise HotbedError(
                    ErrorCode.INTERNAL, f"info.outputs: the width of {kind} must be at least 1"
                )
            yield kind, output.width


def _known(field: str, value: str, known: tuple[_T, ...]) -> _T:
    for name in known:
        if name == value:
            return name
    raise HotbedError(ErrorCode.INTERNAL, f"info.{field} is {value!r}; known are {known}")


def _bad_lengths(lengths: Int32Array, num_tokens: int) -> HotbedError:
    below = np.flatnonzero(lengths < 1)
    if len(below):
        index = int(below[0])
        return invalid(
            f"batch.lengths[{index}] is {int(lengths[index])}: every sequence needs at least "
            "1 token",
            f"input[{index}]",
        )
    return invalid(
        f"batch.lengths sum to {int(lengths.sum(dtype=np.int64))}, batch.token_ids holds "
        f"{num_tokens} tokens",
        "batch.lengths",
    )
