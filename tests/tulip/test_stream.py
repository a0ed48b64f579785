"""Streams over real gRPC: one answer an item, errors by item, cancel, overload, a client that goes.

Rows of cases.md: 12, 15, 16, 82, 83, 113, 115, 120.
"""

from __future__ import annotations

import asyncio

import grpc
import numpy as np
import pytest

from hotbed.core.errors import ErrorCode
from hotbed.core.output import OutputDtype, OutputSpec
from hotbed.tulip import server as server_module
from hotbed.tulip import stream as stream_module
from hotbed.wire import limits
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire import tulip_pb2_grpc as pb_grpc
from hotbed.wire.errors import DETAIL_KEY, error_from_proto, error_from_rpc
from hotbed.wire.limits import channel_options, server_options
from tests.tulip.conftest import WAIT_S, ClientStream, Running, StartTulip, ragged
from tests.tulip.scraping import UNSENT, free_port, scrape, scrape_until


def code(result: pb.ItemResult) -> ErrorCode:
    assert result.WhichOneof("result") == "error", result
    return error_from_proto(result.error).code


async def test_every_item_of_a_message_gets_its_own_rows(tulip: Running) -> None:
    stream = tulip.open_stream()
    await stream.send({i: [[i], [i, i + 1]] for i in range(1, 40)})
    for result in (await stream.receive(39)).values():
        stream.assert_rows(result)


async def test_items_of_one_message_share_a_step(tulip: Running) -> None:
    stream = tulip.open_stream()
    await stream.send({i: [[i]] for i in range(30)})
    await stream.receive(30)
    assert list(tulip.engine.steps)[tulip.steps_before :] == [(30, 30)]


async def test_what_a_step_answers_comes_in_one_message(tulip: Running) -> None:
    stream = tulip.open_stream()
    await stream.send({i: [[i]] for i in range(30)})
    reply = await stream.call.read()
    assert len(reply.results) == 30


async def test_recipes_mixed_in_a_step_do_not_mix_in_the_answers(tulip: Running) -> None:
    stream = tulip.open_stream()
    tulip.engine.hold()
    await stream.send({0: [[9]]})
    await tulip.begun(1)
    for i, dtype in enumerate([*OutputDtype] * 2, 1):
        await stream.send({i: [[i], [i, i]]}, spec=OutputSpec(8 * (i % 3), dtype))
    tulip.engine.release()
    for result in (await stream.receive(11)).values():
        stream.assert_rows(result)


async def test_a_storm_over_many_small_steps_keeps_every_row_with_its_sequence(
    start_tulip: StartTulip,
) -> None:
    tulip = await start_tulip(max_step_tokens=50, min_ahead_tokens=0)
    rng = np.random.default_rng(0)
    streams = [tulip.open_stream() for _ in range(2)]
    for tag in range(60):
        stream = streams[tag % 2]
        lengths = rng.integers(1, 60, rng.integers(1, 8))
        ids = [rng.integers(0, 20_000, n).tolist() for n in lengths]
        await stream.send({tag: ids}, spec=OutputSpec(dtype=list(OutputDtype)[tag % 5]))
    for stream in streams:
        for result in (await stream.receive(30)).values():
            stream.assert_rows(result)


@pytest.mark.parametrize("lengths", [(3, 512), (512, 3), (511, 512), (512, 512, 1)])
async def test_lengths_at_the_limit_are_answered_in_any_order(
    start_tulip: StartTulip, lengths: tuple[int, ...]
) -> None:
    tulip = await start_tulip(max_step_tokens=512)
    stream = tulip.open_stream()
    await stream.send({1: [[n] * n for n in lengths], 2: [[7]]})
    for result in (await stream.receive(2)).values():
        stream.assert_rows(result)


async def test_a_bad_item_is_answered_by_itself_and_the_stream_goes_on(tulip: Running) -> None:
    stream = tulip.open_stream()
    request = pb.StreamRequest()
    request.items.add(id=1, batch=ragged([[30_000]]))
    request.items.add(id=2)
    await stream.call.write(request)
    await stream.send({3: [[3]]})
    results = await stream.receive(3)
    assert code(results[1]) is ErrorCode.INVALID_INPUT
    assert results[1].error.param == "input[0]"
    assert code(results[2]) is ErrorCode.INVALID_INPUT
    stream.assert_rows(results[3])


async def test_a_poisoned_item_fails_alone(tulip: Running) -> None:
    tulip.engine.poison[666] = ValueError("boom")
    stream = tulip.open_stream()
    await stream.send({i: [[i], [666] if i == 7 else [1]] for i in range(20)})
    results = await stream.receive(20)
    assert code(results.pop(7)) is ErrorCode.INTERNAL
    for result in results.values():
        stream.assert_rows(result)


async def test_a_full_queue_refuses_the_item_and_keeps_the_stream(start_tulip: StartTulip) -> None:
    tulip = await start_tulip(max_queue_tokens=600, max_item_tokens=512)
    stream = tulip.open_stream()
    tulip.engine.hold()
    await stream.send({1: [[1]]})
    await tulip.begun(1)
    await stream.send({2: [[2] * 400], 3: [[3] * 400], 4: [[4] * 100]})
    (refused,) = (await stream.receive(1)).values()
    assert (refused.id, code(refused)) == (3, ErrorCode.OVERLOADED)
    assert refused.error.retry_after_ms > 0
    tulip.engine.release()
    for result in (await stream.receive(3)).values():
        stream.assert_rows(result)


async def test_a_stream_with_too_many_items_in_flight_refuses_more(
    start_tulip: StartTulip,
) -> None:
    tulip = await start_tulip(max_stream_items=3)
    stream = tulip.open_stream()
    tulip.engine.hold()
    await stream.send({i: [[i]] for i in range(5)})
    results = await stream.receive(2)
    assert {i: code(r) for i, r in results.items()} == dict.fromkeys((3, 4), ErrorCode.OVERLOADED)
    tulip.engine.release()
    await stream.receive(3)
    await stream.send({9: [[9]]})
    stream.assert_rows((await stream.receive(1))[9])


async def test_a_cancelled_item_is_answered_cancelled_and_not_computed(tulip: Running) -> None:
    stream = tulip.open_stream()
    tulip.engine.hold()
    await stream.send({1: [[1]]})
    await tulip.begun(1)
    await stream.send({2: [[2]], 3: [[3]]})
    await stream.send({}, cancel=[2, 77])
    results = await stream.receive(1)
    assert code(results[2]) is ErrorCode.CANCELLED
    tulip.engine.release()
    await stream.receive(2)
    assert list(tulip.engine.steps)[tulip.steps_before :] == [(1, 1), (1, 1)]


async def test_an_item_cancelled_while_it_runs_is_answered_at_once(tulip: Running) -> None:
    stream = tulip.open_stream()
    tulip.engine.hold()
    await stream.send({1: [[1]]})
    await tulip.begun(1)
    await stream.send({}, cancel=[1])
    assert code((await stream.receive(1))[1]) is ErrorCode.CANCELLED
    tulip.engine.release()
    await stream.send({1: [[5]]})  # the id is free again
    stream.assert_rows((await stream.receive(1))[1])


async def test_an_items_timeout_passes_while_it_waits_behind_a_long_step(tulip: Running) -> None:
    stream = tulip.open_stream()
    tulip.engine.hold()
    await stream.send({1: [[1]]})
    await tulip.begun(1)
    await stream.send({2: [[2]]}, timeout_ms=20)
    # Answered while the step still runs.
    assert code((await stream.receive(1))[2]) is ErrorCode.DEADLINE_EXCEEDED
    tulip.engine.release()
    stream.assert_rows((await stream.receive(1))[1])


async def test_an_items_timeout_that_passes_while_it_runs_is_answered_at_the_steps_end(
    tulip: Running,
) -> None:
    stream = tulip.open_stream()
    tulip.engine.hold()
    await stream.send({1: [[1]]}, timeout_ms=20)
    await tulip.begun(1)
    await stream.send({2: [[2]]}, timeout_ms=30)
    await stream.receive(1)  # the second's time is up, so the first's is
    tulip.engine.release()
    assert code((await stream.receive(1))[1]) is ErrorCode.DEADLINE_EXCEEDED


async def test_an_id_that_is_in_flight_already_ends_the_stream_with_a_reason(
    tulip: Running,
) -> None:
    stream = tulip.open_stream()
    tulip.engine.hold()
    await stream.send({1: [[1]]})
    await tulip.begun(1)
    await stream.send({1: [[2]]})
    with pytest.raises(grpc.RpcError) as caught:
        await stream.call.read()
    error = error_from_rpc(caught.value)
    assert (error.code, error.param) == (ErrorCode.INVALID_INPUT, "items.id")
    assert any(key == DETAIL_KEY for key, _ in caught.value.trailing_metadata())
    tulip.engine.release()
    await tulip.embed([[3]])


async def test_a_client_that_closes_its_side_still_gets_its_answers(tulip: Running) -> None:
    stream = tulip.open_stream()
    tulip.engine.hold()
    await stream.send({1: [[1]], 2: [[2]]})
    await stream.call.done_writing()
    await tulip.begun(1)
    tulip.engine.release()
    for result in (await stream.receive(2)).values():
        stream.assert_rows(result)
    assert await stream.call.read() is grpc.aio.EOF
    assert await stream.call.code() is grpc.StatusCode.OK


async def test_an_empty_stream_ends_when_the_client_closes_it(tulip: Running) -> None:
    stream = tulip.open_stream()
    await stream.call.done_writing()
    assert await stream.call.read() is grpc.aio.EOF


async def test_work_of_a_client_that_is_gone_leaves_the_queue(start_tulip: StartTulip) -> None:
    tulip = await start_tulip(max_queue_tokens=600, max_item_tokens=512, max_steps_in_flight=1)
    gone, stays = tulip.open_stream(), tulip.open_stream()
    tulip.engine.hold()
    await stays.send({0: [[1]]})
    await tulip.begun(1)
    await gone.send({1: [[9] * 512]})
    await gone.send({2: [[9] * 512]})
    assert code((await gone.receive(1))[2]) is ErrorCode.OVERLOADED
    gone.call.cancel()
    # Once there is room again an item waits, and its time passes, instead of being refused.
    refusal = ErrorCode.OVERLOADED
    while refusal is ErrorCode.OVERLOADED:
        await stays.send({1: [[2] * 500]}, timeout_ms=5)
        refusal = code((await stays.receive(1))[1])
    assert refusal is ErrorCode.DEADLINE_EXCEEDED
    tulip.engine.release()
    await stays.receive(1)
    assert list(tulip.engine.steps)[tulip.steps_before :] == [(1, 1)]


async def test_answers_larger_than_a_message_should_be_are_spread_over_several(
    tulip: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "SOFT_MESSAGE_BYTES", 4000)
    stream = tulip.open_stream()
    await stream.send({i: [[i]] * 10 for i in range(10)})  # 1,280 bytes of rows each
    num_messages, results = 0, {}
    while len(results) < 10:
        reply = await stream.call.read()
        assert len(reply.results) <= 3
        num_messages += 1
        results |= {r.id: r for r in reply.results}
    assert num_messages == 5
    for result in results.values():
        stream.assert_rows(result)


async def test_a_reply_above_grpcs_own_default_limit_arrives(start_tulip: StartTulip) -> None:
    tulip = await start_tulip(max_item_sequences=40_000)
    stream = tulip.open_stream()
    await stream.send({1: [[5]] * 40_000})
    result = (await stream.receive(1))[1]
    assert 4 * 2**20 < result.ByteSize() < limits.MAX_MESSAGE_BYTES
    stream.assert_rows(result)


async def test_a_client_that_does_not_read_is_not_read_from_either(
    start_tulip: StartTulip, monkeypatch: pytest.MonkeyPatch
) -> None:
    # gRPC's own buffers stay at 64 kB; else they grow to megabytes, which thousands of items fill.
    small = [("grpc.http2.bdp_probe", 0)]
    monkeypatch.setattr(
        server_module, "server_options", lambda **given: [*server_options(**given), *small]
    )
    port = free_port()
    tulip = await start_tulip(
        max_queue_tokens=10_000_000, max_stream_items=1_000_000, metrics_port=port
    )
    monkeypatch.setattr(stream_module, "MAX_UNSENT_BYTES", 100_000)
    channel = grpc.aio.insecure_channel(tulip.address, options=[*channel_options(), *small])
    stream = ClientStream(pb_grpc.TulipStub(channel).Stream(timeout=100))
    num_sent, enough = 0, asyncio.Event()

    async def flood() -> None:
        nonlocal num_sent
        while not enough.is_set():
            # 8 kB of rows each, and no larger than a turn: larger ones of one client go on side by
            # side, and many are taken before the first has rows to send.
            await stream.send({num_sent: [[1]] * 60})
            num_sent += 1
            await asyncio.sleep(0.001)  # about as fast as they are computed

    flooding = asyncio.ensure_future(flood())
    other = tulip.open_stream(timeout=100)
    previous = -1
    while num_sent > previous:  # until nothing more is taken in the time of many other items
        previous = num_sent
        for i in range(50):
            await other.send({i: [[2]]})
            await other.receive(1)
    enough.set()
    num_computed = sum(sequences for sequences, _ in tulip.engine.steps)
    assert num_computed < 60 * num_sent
    assert (await scrape(port))[UNSENT] > 100_000
    # Whoever reads after all gets everything.
    results = await stream.receive(num_sent)
    await flooding
    results |= await stream.receive(num_sent - len(results))
    for tag in range(0, num_sent, 10):
        stream.assert_rows(results[tag])
    # A result may have come before the call that wrote it has returned.
    await scrape_until(port, UNSENT, lambda unsent: unsent == 0)
    await channel.close()


async def test_two_streams_and_unary_calls_side_by_side_get_their_own_answers(
    tulip: Running,
) -> None:
    streams = [tulip.open_stream() for _ in range(2)]
    for n in range(5):
        await asyncio.gather(
            *(s.send({n: [[n, k]]}) for k, s in enumerate(streams)), tulip.embed([[n]])
        )
    for stream in streams:
        for result in (await stream.receive(5)).values():
            stream.assert_rows(result)


async def test_tenants_of_one_stream_take_turns_and_one_of_two_streams_is_one_client(
    start_tulip: StartTulip,
) -> None:
    tulip = await start_tulip(max_step_tokens=320, max_steps_in_flight=1)  # turns of 10
    first, second = tulip.open_stream(), tulip.open_stream()
    tulip.engine.hold()
    await first.send({0: [[0]]})
    await tulip.begun(1)
    await first.send({tag: [[tag] * 10] for tag in range(100, 120)}, tenant=b"flood")
    await second.send({tag: [[tag] * 10] for tag in range(200, 220)}, tenant=b"flood")
    for stream in (first, second):  # once this is refused, what was sent before it has arrived
        await stream.send({9: [[9]]}, tenant=b"x" * 65)
        assert code((await stream.receive(1))[9]) is ErrorCode.INVALID_INPUT
    await first.send({tag: [[tag] * 10] for tag in range(300, 304)}, tenant=b"other")
    await first.send({9: [[9]]}, tenant=b"x" * 65)
    assert code((await first.receive(1))[9]) is ErrorCode.INVALID_INPUT
    tulip.engine.release()
    results = await first.receive(25)
    for result in results.values():
        first.assert_rows(result)
    # The other has every second turn, though the flood came on two streams.
    order = list(results)
    assert all(order.index(tag) <= 8 for tag in range(300, 304))
    await second.receive(20)


async def test_an_odd_number_of_items_over_two_replicas_leaves_nobody_waiting(
    start_tulip: StartTulip,
) -> None:
    streams = [(await start_tulip()).open_stream() for _ in range(2)]
    for n in range(7):
        stream = streams[n % 2]
        await stream.send({n: [[n]]})
        async with asyncio.timeout(WAIT_S):
            stream.assert_rows((await stream.receive(1))[n])
