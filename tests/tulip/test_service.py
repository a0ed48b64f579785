"""Unary calls over real gRPC. Rows of cases.md: 1, 12, 15, 60, 113 to 115, 121."""

from __future__ import annotations

import asyncio

import grpc
import numpy as np
import pytest

from hotbed import __version__
from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.tulip.testing import FAKE_INFO, OutOfMemoryError, expected_rows
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.codec import decode_info, decode_rows, encode_output, encode_ragged
from hotbed.wire.errors import error_from_rpc
from tests.core.test_ragged import with_spans
from tests.tulip.conftest import WAIT_S, Running, StartTulip, ragged


async def error_of(call: object) -> HotbedError:
    with pytest.raises(grpc.RpcError) as caught:
        await call
    return error_from_rpc(caught.value)


async def test_rows_come_back_in_the_order_of_the_sequences(tulip: Running) -> None:
    ids = [[1, 2, 3], [4], [5, 6]]
    rows = await tulip.embed(ids)
    np.testing.assert_array_equal(decode_rows(rows), expected_rows(ids))
    assert rows.fingerprint == FAKE_INFO.fingerprint


@pytest.mark.parametrize("dtype", OutputDtype)
async def test_every_dtype_and_a_cut_arrive_as_asked(tulip: Running, dtype: OutputDtype) -> None:
    spec = OutputSpec(16, dtype, normalize=False)
    request = pb.EmbedRequest(batch=ragged([[1, 2], [3]]), output=encode_output(spec))
    reply = await tulip.stub.Embed(request, timeout=WAIT_S)
    np.testing.assert_array_equal(decode_rows(reply.rows), expected_rows([[1, 2], [3]], spec))


async def test_timings_add_up(tulip: Running) -> None:
    timings = (await tulip.embed([[1]])).timings
    assert 0 < timings.device_us <= timings.total_us
    assert abs(timings.queue_us + timings.device_us - timings.total_us) <= 2


async def test_info_tells_model_and_limits(tulip: Running) -> None:
    reply = await tulip.stub.Info(pb.InfoRequest(), timeout=WAIT_S)
    info, limits = decode_info(reply)
    assert info == FAKE_INFO
    assert limits.max_step_tokens == tulip.engine.default_step_tokens
    assert reply.version == __version__


@pytest.mark.parametrize("method", ["Embed", "Stream"])
async def test_a_message_that_is_none_is_the_clients_fault(
    tulip: Running, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    make = tulip.channel.unary_unary if method == "Embed" else tulip.channel.stream_stream
    call = make(f"/hotbed.tulip.v1.Tulip/{method}")  # no codecs: bytes as they are
    garbage = b"\xff\xff\xff"

    async def send() -> None:
        if method == "Embed":
            await call(garbage, timeout=WAIT_S)
        else:
            stream = call(timeout=WAIT_S)
            await stream.write(garbage)
            await stream.read()

    error = await error_of(send())
    assert (error.code, error.message) == (
        ErrorCode.INVALID_INPUT,
        f"a message is no {method}Request of hotbed.tulip.v1",
    )
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    await tulip.embed([[1]])


async def test_stats_tell_what_ran_and_what_waits(tulip: Running) -> None:
    before = await tulip.stub.Stats(pb.StatsRequest(), timeout=WAIT_S)
    await tulip.embed([[1, 2], [3]])
    after = await tulip.stub.Stats(pb.StatsRequest(), timeout=WAIT_S)
    assert after.steps - before.steps == 1
    assert after.step_sequences - before.step_sequences == 2
    assert after.step_tokens - before.step_tokens == 3
    assert after.step_seconds > before.step_seconds
    assert (after.waiting_tokens, after.open_items, after.failed_steps) == (0, 0, 0)
    assert dict(after.engine) == tulip.engine.counters()


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (pb.EmbedRequest(), "batch"),
        (pb.EmbedRequest(batch=ragged([[1], [30_000]])), "input[1]"),
        (pb.EmbedRequest(batch=ragged([[1], [2], [0] * 513])), "input[2]"),
        (
            pb.EmbedRequest(batch=ragged([[1]]), output=pb.Output(dimensions=33)),
            "output.dimensions",
        ),
        (pb.EmbedRequest(batch=pb.Ragged(token_ids=b"123")), "batch.token_ids"),
    ],
)
async def test_a_bad_request_is_named_and_the_next_good_one_is_served(
    tulip: Running, request_: pb.EmbedRequest, param: str
) -> None:
    error = await error_of(tulip.stub.Embed(request_, timeout=WAIT_S))
    assert (error.code, error.param) == (ErrorCode.INVALID_INPUT, param)
    assert len(tulip.engine.steps) == tulip.steps_before, "it reached the engine"
    await tulip.embed([[1]])


async def test_a_request_that_can_never_fit_is_too_large_on_an_idle_server(
    start_tulip: StartTulip,
) -> None:
    tulip = await start_tulip(max_item_sequences=3)
    error = await error_of(tulip.embed([[1]] * 4))
    assert error.code is ErrorCode.TOO_LARGE
    await tulip.embed([[1]] * 3)


async def test_a_full_queue_refuses_with_a_hint_and_serves_what_it_took(
    start_tulip: StartTulip,
) -> None:
    tulip = await start_tulip(max_queue_tokens=600, max_item_tokens=512)
    tulip.engine.hold()
    running = asyncio.ensure_future(tulip.embed([[1]]))
    await tulip.begun(1)
    waiting = asyncio.ensure_future(tulip.embed([[2] * 400]))
    error = await error_of(eventually_refused(tulip))
    assert error.code is ErrorCode.OVERLOADED
    assert error.retry_after_s
    tulip.engine.release()
    await asyncio.gather(running, waiting)


async def eventually_refused(tulip: Running) -> None:
    """Two more items of 150 tokens: the first may come before the 400, the second cannot fit."""
    await asyncio.gather(tulip.embed([[3] * 250]), tulip.embed([[4] * 250]))


async def test_a_deadline_reaches_the_queue(tulip: Running) -> None:
    tulip.engine.hold()
    running = asyncio.ensure_future(tulip.embed([[1]]))
    await tulip.begun(1)
    error = await error_of(tulip.embed([[2]], timeout=0.05))
    assert error.code is ErrorCode.DEADLINE_EXCEEDED
    # The client's clock rang; on a busy machine the server's rings a little later.
    await asyncio.sleep(0.5)
    tulip.engine.release()
    await running
    await tulip.embed([[3]])
    assert len(tulip.engine.steps) == tulip.steps_before + 2, "the expired item was computed"


async def test_a_cancelled_call_leaves_the_queue(tulip: Running) -> None:
    tulip.engine.hold()
    running = asyncio.ensure_future(tulip.embed([[1]]))
    await tulip.begun(1)
    call = tulip.stub.Embed(pb.EmbedRequest(batch=ragged([[2]])))
    await tulip.open_items(2)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await tulip.open_items(1)
    tulip.engine.release()
    await running
    await tulip.embed([[3]])
    steps = list(tulip.engine.steps)[tulip.steps_before :]
    assert sum(num_sequences for num_sequences, _ in steps) == 2, "the cancelled item was computed"


async def test_a_poisoned_item_fails_alone_and_its_neighbours_get_their_rows(
    tulip: Running,
) -> None:
    tulip.engine.poison[666] = ValueError("secret detail")
    tulip.engine.hold()
    first = asyncio.ensure_future(tulip.embed([[1]]))
    await tulip.begun(1)
    good = [asyncio.ensure_future(tulip.embed([[i], [i, i]])) for i in range(10, 15)]
    bad = asyncio.ensure_future(tulip.embed([[1], [2, 666]]))
    tulip.engine.release()
    error = await error_of(bad)
    assert (error.code, error.param) == (ErrorCode.INTERNAL, "input[1]")
    assert "secret" not in error.message
    for i, rows in zip(range(10, 15), await asyncio.gather(*good), strict=True):
        np.testing.assert_array_equal(decode_rows(rows), expected_rows([[i], [i, i]]))
    await first


async def test_out_of_memory_splits_the_step_and_everybody_is_served(tulip: Running) -> None:
    tulip.engine.memory_tokens = 100
    ids = [[i] * 90 for i in range(1, 8)]
    rows = await tulip.embed(ids)
    np.testing.assert_array_equal(decode_rows(rows), expected_rows(ids))


async def test_out_of_memory_on_one_sequence_alone_is_overloaded_and_the_server_lives(
    tulip: Running,
) -> None:
    tulip.engine.memory_tokens = 100
    error = await error_of(tulip.embed([[1] * 101]))
    assert error.code is ErrorCode.OVERLOADED
    assert "out of memory" in error.message
    await tulip.embed([[1]])


@pytest.mark.parametrize("dtype", [pb.FLOAT32, pb.INT8])
async def test_nan_is_never_sent_as_a_vector(tulip: Running, dtype: pb.Dtype) -> None:
    tulip.engine.non_finite.add(7)
    request = pb.EmbedRequest(batch=ragged([[1], [7]]), output=pb.Output(dtype=dtype))
    error = await error_of(tulip.stub.Embed(request, timeout=WAIT_S))
    assert (error.code, error.param) == (ErrorCode.INTERNAL, "input[1]")
    assert "not finite" in error.message


@pytest.mark.parametrize("error", [OutOfMemoryError("x"), RuntimeError("x")])
async def test_a_step_that_fails_once_is_tried_again(tulip: Running, error: Exception) -> None:
    tulip.engine.fail_next(error)
    rows = await tulip.embed([[1], [2]])
    np.testing.assert_array_equal(decode_rows(rows), expected_rows([[1], [2]]))


async def test_chunks_of_documents_get_a_row_each(tulip: Running) -> None:
    batch = with_spans(([1, 2, 3, 4], [(0, 1), (2, 2), (2, 4)]), ([5], [(0, 1)]))
    request = pb.EmbedRequest(batch=encode_ragged(batch))
    reply = await tulip.stub.Embed(request, timeout=WAIT_S)
    rows = decode_rows(reply.rows)
    assert reply.rows.count == 4
    np.testing.assert_array_equal(rows, expected_rows(batch))
    assert not rows[1].any(), "an empty chunk"
