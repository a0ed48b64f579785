"""The door: messages become a batch and a recipe that suit the model; answers become messages.

Checks cost a few array operations an item, none a token. Behind the door the engine may trust ids,
lengths and dimensions.
"""

from __future__ import annotations

import numpy as np

from hotbed.core.errors import HotbedError, invalid
from hotbed.core.model_info import ModelInfo
from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.tulip import faults
from hotbed.tulip.work import Answer
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.codec import decode_output, decode_ragged, encode_row_sets, encode_rows
from hotbed.wire.limits import MAX_ANSWER_BYTES, MAX_TENANT_BYTES

_MAX_UINT32 = 2**32 - 1


def admit(
    batch_message: pb.Ragged, output_message: pb.Output, info: ModelInfo
) -> tuple[RaggedBatch, OutputSpec]:
    """Decode and check one item.

    Returns:
        The batch and its recipe, with dimensions and normalisation made explicit.

    Raises:
        HotbedError: INVALID_INPUT that names the sequence (``input[3]``) or field at fault.
    """
    batch = decode_ragged(batch_message)
    if batch.spans is not None:
        info.check_spans()
    _check_ids(batch, info.vocab_size)
    _check_lengths(batch, info.max_tokens)
    if batch.pair_starts is not None and info.token_types < 2:
        raise invalid(
            "batch.pair_starts must be empty: the model has one token type", "batch.pair_starts"
        )
    spec = decode_output(output_message)
    if spec.is_plain:
        return batch, _explicit(spec, info)
    return batch, _explicit_outputs(spec, batch, info)


def tenant_of(name: bytes) -> bytes:
    """The tenant of an item; empty if it names none.

    Raises:
        HotbedError: INVALID_INPUT if the name is too long: it is kept while its items wait.
    """
    if len(name) > MAX_TENANT_BYTES:
        raise invalid(f"tenant has {len(name)} bytes, the limit is {MAX_TENANT_BYTES}", "tenant")
    return name


def hand_out(answer: Answer, fingerprint: str, into: pb.Rows) -> None:
    """Write the answer's rows and timings into an empty message.

    Raises:
        HotbedError: the answer is an error.
    """
    if isinstance(answer.result, HotbedError):
        raise answer.result
    timings = pb.Timings(
        queue_us=_us(answer.queue_s), device_us=_us(answer.device_s), total_us=_us(answer.total_s)
    )
    if isinstance(answer.result, list):
        encode_row_sets(answer.result, answer.item.spec, timings, fingerprint, into)
    else:
        encode_rows(answer.result, answer.item.spec, timings, fingerprint, into)


def _us(seconds: float) -> int:
    return min(round(seconds * 1e6), _MAX_UINT32)


def _check_ids(batch: RaggedBatch, vocab_size: int) -> None:
    # As unsigned a negative id is a huge one: one pass finds both.
    unsigned = batch.token_ids.view(np.uint32)
    if int(unsigned.max()) < vocab_size:
        return
    position = int(np.argmax(unsigned >= vocab_size))
    index = int(np.searchsorted(batch.cu_seqlens, position, side="right")) - 1
    raise invalid(
        f"token id {int(batch.token_ids[position])} at position "
        f"{position - int(batch.cu_seqlens[index])} of sequence {index} is outside the "
        f"vocabulary: ids are 0 to {vocab_size - 1}",
        f"input[{index}]",
    )


def _check_lengths(batch: RaggedBatch, max_tokens: int) -> None:
    if batch.num_sequences == 1:
        if batch.num_tokens <= max_tokens:
            return
    elif int(batch.lengths.max()) <= max_tokens:
        return
    raise _too_long(batch, max_tokens)


def _too_long(batch: RaggedBatch, max_tokens: int) -> HotbedError:
    index = int(np.argmax(batch.lengths > max_tokens))
    return invalid(
        f"sequence {index} has {int(batch.lengths[index])} tokens, the model takes {max_tokens}",
        f"input[{index}]",
    )


def _explicit(spec: OutputSpec, info: ModelInfo) -> OutputSpec:
    """The recipe with the model's defaults filled in, so that equal recipes compare equal."""
    dimensions = spec.dimensions or info.dimensions
    if info.task == "score":
        return _explicit_score(spec, info)
    info.check_output("dense")
    if spec.raw_scores:
        raise invalid("output.raw_scores must be false: the model embeds", "output.raw_scores")
    if dimensions > info.dimensions:
        raise invalid(
            f"output.dimensions is {dimensions}, the model has 1 to {info.dimensions}",
            "output.dimensions",
        )
    if spec.dtype.is_packed and dimensions % 8:
        raise invalid(
            f"output.dimensions must divide by 8 for {spec.dtype.value}, the model has "
            f"{dimensions}",
            "output.dimensions",
        )
    normalize = info.normalize if spec.normalize is None else spec.normalize
    return OutputSpec(dimensions, spec.dtype, normalize)


def _explicit_outputs(spec: OutputSpec, batch: RaggedBatch, info: ModelInfo) -> OutputSpec:
    """The same for a recipe that is not plain.

    What it is by default belongs to the model's head, so normalisation stays as it is.
    """
    if batch.spans is not None:
        raise invalid(
            "batch.span_counts must be empty: only dense outputs have rows of spans",
            "batch.span_counts",
        )
    num_bytes = 0
    for one in spec.each():
        info.check_output(one.kind)
        if one.raw_scores:
            raise invalid("output.raw_scores must be false: the model embeds", "output.raw_scores")
        native = info.widths[one.kind]
        if one.dimensions > native:
            raise invalid(
                f"output.dimensions is {one.dimensions}, the {one.kind} output has 1 to {native}",
                "output.dimensions",
            )
        if one.dtype.is_packed and (one.dimensions or native) % 8:
            raise invalid(
                f"output.dimensions must divide by 8 for {one.dtype.value}, the {one.kind} output "
                f"has {one.dimensions or native}",
                "output.dimensions",
            )
        num_bytes += info.answer_bytes(one, batch.num_tokens, batch.num_sequences)
    if num_bytes > MAX_ANSWER_BYTES:
        raise faults.too_large(num_bytes, MAX_ANSWER_BYTES, "bytes of outputs")
    return spec


def _explicit_score(spec: OutputSpec, info: ModelInfo) -> OutputSpec:
    """The same for a model that scores, whose rows have one form besides raw or not."""
    if spec.dimensions not in (0, info.dimensions):
        raise invalid(
            f"output.dimensions is {spec.dimensions}, the model gives {info.dimensions} scores, "
            "always all",
            "output.dimensions",
        )
    if spec.dtype is not OutputDtype.FLOAT32:
        raise invalid(
            f"output.dtype is {spec.dtype.value}, scores are float32 only", "output.dtype"
        )
    if spec.normalize:
        raise invalid("output.normalize must not be set: the model scores", "output.normalize")
    return OutputSpec(info.dimensions, normalize=False, raw_scores=spec.raw_scores)
