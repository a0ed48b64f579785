"""Symptoms guarded: ids or rows changed on the wire, malformed messages accepted or crashing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.model_info import ModelInfo
from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.wire import codec
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.limits import Limits
from tests.core.test_ragged import batches, rows

INFO = ModelInfo("m", "embed", "bert", 384, 256, 30522, "mean", True, "float32", "cpu", "abc")
LIMITS = Limits(2048, 512, 262144, 2048, 131072, 1024)

sequences = st.lists(
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=7), min_size=1, max_size=6
)


def int32(*values: int) -> bytes:
    return np.array(values, dtype="<i4").tobytes()


@given(sequences)
@settings(deadline=None)
def test_a_ragged_batch_survives_the_wire(ids: list[list[int]]) -> None:
    batch = RaggedBatch.from_sequences(ids)
    message = pb.Ragged.FromString(codec.encode_ragged(batch).SerializeToString())
    back = codec.decode_ragged(message)
    assert [back.sequence(i).tolist() for i in range(back.num_sequences)] == ids


def test_ids_are_little_endian_int32_whatever_the_host() -> None:
    message = codec.encode_ragged(RaggedBatch.from_sequences([[1], [258]]))
    assert message.token_ids == b"\x01\x00\x00\x00\x02\x01\x00\x00"
    assert message.lengths == b"\x01\x00\x00\x00\x01\x00\x00\x00"


def test_a_sliced_batch_sends_its_own_tokens_only() -> None:
    batch = RaggedBatch.from_sequences([[1, 2], [3], [4, 5]]).slice(1, 3)
    back = codec.decode_ragged(codec.encode_ragged(batch))
    assert back.token_ids.tolist() == [3, 4, 5]
    assert back.lengths.tolist() == [1, 2]


def test_decoded_ids_share_the_message_bytes_and_cannot_be_written() -> None:
    back = codec.decode_ragged(pb.Ragged(token_ids=int32(1, 2), lengths=int32(2)))
    assert not back.token_ids.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        back.token_ids[0] = 5


@given(batches())
@settings(deadline=None)
def test_spans_survive_the_wire(batch: RaggedBatch) -> None:
    message = pb.Ragged.FromString(codec.encode_ragged(batch).SerializeToString())
    assert rows(codec.decode_ragged(message)) == rows(batch)


def test_a_batch_without_spans_sends_none() -> None:
    message = codec.encode_ragged(RaggedBatch.from_sequences([[1, 2]]))
    assert (message.span_counts, message.span_bounds) == (b"", b"")
    assert codec.decode_ragged(message).spans is None


@pytest.mark.parametrize(
    ("counts", "bounds", "param", "message"),
    [
        (int32(1, 1), b"", "batch.span_counts", "sum to 2, batch.span_bounds holds 0"),
        (b"", int32(0, 1), "batch.span_counts", "sum to 0, batch.span_bounds holds 2"),
        (int32(1, 1), int32(0, 1), "batch.span_counts", "sum to 2"),
        (int32(1), int32(0, 1), "batch.span_bounds", "cu_spans"),
        (int32(2, 0), int32(0, 1, 1, 2), "batch.span_bounds", "at least 1 span"),
        (int32(3, -1), int32(0, 1, 1, 2), "batch.span_bounds", "at least 1 span"),
        (int32(1, 1), int32(0, 1, 0, 2), "batch.span_bounds", "span 0 of sequence 1 is 0 to 2"),
        (int32(1, 1), int32(1, 0, 0, 1), "batch.span_bounds", "span 0 of sequence 0 is 1 to 0"),
        (b"\x01", b"", "batch.span_counts", "not a multiple of 4"),
    ],
)
def test_malformed_spans_are_refused_and_name_their_field(
    counts: bytes, bounds: bytes, param: str, message: str
) -> None:
    ragged = pb.Ragged(token_ids=int32(1, 2, 3), lengths=int32(2, 1))
    ragged.span_counts, ragged.span_bounds = counts, bounds
    with pytest.raises(HotbedError, match=message) as caught:
        codec.decode_ragged(ragged)
    assert (caught.value.code, caught.value.param) == (ErrorCode.INVALID_INPUT, param)


@pytest.mark.parametrize(
    ("token_ids", "lengths", "param", "message"),
    [
        (b"", b"", "batch", "at least 1 sequence"),
        (int32(1), b"", "batch", "at least 1 sequence"),
        (b"\x01\x00\x00", int32(1), "batch.token_ids", "3 bytes, not a multiple of 4"),
        (int32(1), b"\x01", "batch.lengths", "1 bytes, not a multiple of 4"),
        (int32(1, 2), int32(1), "batch.lengths", "sum to 1, batch.token_ids holds 2"),
        (int32(1, 2), int32(1, 2), "batch.lengths", "sum to 3, batch.token_ids holds 2"),
        (b"", int32(0), "input[0]", r"lengths\[0\] is 0"),
        (int32(1), int32(-1), "input[0]", r"lengths\[0\] is -1"),
        (int32(1, 2), int32(1, 0, 1), "input[1]", r"lengths\[1\] is 0"),
        (int32(1, 2), int32(3, -1), "input[1]", r"lengths\[1\] is -1"),
        # int32 sums of these wrap round to the right number of tokens.
        (int32(7), int32(2**31 - 1, 2**31 - 1, 3), "batch.lengths", "sum to 4294967297"),
    ],
)
def test_a_malformed_batch_is_refused_and_names_its_field(
    token_ids: bytes, lengths: bytes, param: str, message: str
) -> None:
    with pytest.raises(HotbedError, match=message) as caught:
        codec.decode_ragged(pb.Ragged(token_ids=token_ids, lengths=lengths))
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert caught.value.param == param


@given(token_ids=st.binary(max_size=24), lengths=st.binary(max_size=12))
@settings(deadline=None)
def test_random_bytes_give_a_batch_or_a_clear_error(token_ids: bytes, lengths: bytes) -> None:
    message = pb.Ragged(token_ids=token_ids, lengths=lengths)
    values = np.frombuffer(lengths[: len(lengths) // 4 * 4], dtype="<i4").tolist()
    is_sound = (
        len(token_ids) % 4 == 0
        and len(lengths) % 4 == 0
        and len(values) > 0
        and min(values) > 0
        and sum(values) * 4 == len(token_ids)
    )
    if is_sound:
        assert codec.decode_ragged(message).lengths.tolist() == values
    else:
        with pytest.raises(HotbedError) as caught:
            codec.decode_ragged(message)
        assert caught.value.code is ErrorCode.INVALID_INPUT


@pytest.mark.parametrize("dtype", OutputDtype)
@pytest.mark.parametrize("normalize", [None, True, False])
@pytest.mark.parametrize("dimensions", [0, 128])
def test_every_output_recipe_survives_the_wire(
    dtype: OutputDtype, normalize: bool | None, dimensions: int
) -> None:
    spec = OutputSpec(dimensions, dtype, normalize)
    message = pb.Output.FromString(codec.encode_output(spec).SerializeToString())
    assert codec.decode_output(message) == spec


def test_a_missing_output_means_the_models_own_float32() -> None:
    assert codec.decode_output(pb.Item().output) == OutputSpec()


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (b"\x10\x09", "output.dtype"),
        (b"\x18\x07", "output.normalize"),
        (b"\x08\x0c\x10\x03", "output.dimensions"),  # 12 dimensions as bits
    ],
)
def test_a_malformed_output_is_refused_and_names_its_field(message: bytes, param: str) -> None:
    with pytest.raises(HotbedError) as caught:
        codec.decode_output(pb.Output.FromString(message))
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert caught.value.param == param


@pytest.mark.parametrize("dtype", OutputDtype)
def test_rows_survive_the_wire_in_every_dtype(dtype: OutputDtype) -> None:
    rows = np.arange(-6, 6).reshape(3, 4).astype(dtype.numpy)
    message = codec.encode_rows(rows, OutputSpec(dtype=dtype), pb.Timings(queue_us=5), "abc")
    message = pb.Rows.FromString(message.SerializeToString())
    back = codec.decode_rows(message)
    assert back.dtype == dtype.numpy
    np.testing.assert_array_equal(back, rows)
    assert (message.timings.queue_us, message.fingerprint) == (5, "abc")


def test_encoders_fill_the_fields_of_a_larger_message() -> None:
    item, reply = pb.Item(id=1), pb.StreamReply()
    codec.encode_ragged(RaggedBatch.from_sequences([[7, 8]]), into=item.batch)
    codec.encode_output(OutputSpec(8, OutputDtype.INT8, normalize=False), into=item.output)
    rows = reply.results.add(id=1).rows
    codec.encode_rows(np.ones((1, 2), "<f4"), OutputSpec(), pb.Timings(total_us=3), "f", into=rows)
    item = pb.Item.FromString(item.SerializeToString())
    assert codec.decode_ragged(item.batch).token_ids.tolist() == [7, 8]
    assert codec.decode_output(item.output) == OutputSpec(8, OutputDtype.INT8, normalize=False)
    reply = pb.StreamReply.FromString(reply.SerializeToString())
    assert reply.results[0].WhichOneof("result") == "rows"
    assert codec.decode_rows(reply.results[0].rows).tolist() == [[1, 1]]
    assert reply.results[0].rows.timings.total_us == 3


def test_rows_that_are_a_view_into_a_step_are_sent_in_order() -> None:
    step_rows = np.arange(12, dtype="<f4").reshape(6, 2)
    message = codec.encode_rows(step_rows[2:4], OutputSpec(), pb.Timings(), "")
    assert codec.decode_rows(message).tolist() == [[4, 5], [6, 7]]


def test_rows_of_another_dtype_than_promised_are_a_bug_and_not_sent() -> None:
    with pytest.raises(ValueError, match="rows must be"):
        codec.encode_rows(np.zeros((1, 2)), OutputSpec(), pb.Timings(), "")


@pytest.mark.parametrize(
    "message",
    [
        pb.Rows(data=b"1234", count=1, width=2),
        pb.Rows(data=b"12345", count=1, width=1),
        pb.Rows.FromString(b"\x20\x09"),
    ],
)
def test_malformed_rows_are_the_servers_fault(message: pb.Rows) -> None:
    with pytest.raises(HotbedError, match="rows") as caught:
        codec.decode_rows(message)
    assert caught.value.code is ErrorCode.INTERNAL


def test_info_survives_the_wire() -> None:
    message = codec.encode_info(INFO, LIMITS, "0.1.0")
    message = pb.InfoReply.FromString(message.SerializeToString())
    assert codec.decode_info(message) == (INFO, LIMITS)
    assert message.version == "0.1.0"


def test_an_empty_info_is_refused_rather_than_taken_as_limits_of_zero() -> None:
    message = codec.encode_info(INFO, LIMITS, "0.1.0")
    message.limits.max_item_tokens = 0
    with pytest.raises(HotbedError, match=r"info.limits.max_item_tokens") as caught:
        codec.decode_info(message)
    assert caught.value.code is ErrorCode.INTERNAL
