"""Streams of gateways on the same machine, without gRPC: the same contract."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from hotbed.core.errors import ErrorCode
from hotbed.ivy.local_call import LocalCall
from hotbed.tulip.settings import TulipSettings
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.errors import error_from_proto
from hotbed.wire.framed import FramedStream
from hotbed.wire.limits import FRAMED_SUFFIX
from tests.tulip.conftest import WAIT_S, ClientStream, Running, StartTulip
from tests.tulip.scraping import free_port, items, scrape_until


@pytest.fixture
async def local(start_tulip: StartTulip) -> Running:
    return await start_tulip(local_stream=True)


async def opened(tulip: Running) -> ClientStream:
    return ClientStream(await LocalCall.open(tulip.address))


async def ended(call: Any) -> bool:
    async with asyncio.timeout(WAIT_S):
        is_at_end = await call.read() is grpc.aio.EOF
    call.cancel()
    return is_at_end


async def test_every_item_gets_its_own_rows_and_its_own_error(local: Running) -> None:
    stream = await opened(local)
    await stream.send({i: [[i], [i + 1, 7]] for i in range(50)})
    await stream.send({99: [[30_000]]})
    results = await stream.receive(51)
    error = error_from_proto(results.pop(99).error)
    assert (error.code, error.param) == (ErrorCode.INVALID_INPUT, "input[0]")
    for result in results.values():
        stream.assert_rows(result)
    stream.call.cancel()


async def test_info_says_so_and_only_where_it_is_so(
    local: Running, start_tulip: StartTulip
) -> None:
    assert (await local.stub.Info(pb.InfoRequest(), timeout=WAIT_S)).local_stream
    other = await start_tulip()
    assert not (await other.stub.Info(pb.InfoRequest(), timeout=WAIT_S)).local_stream
    assert not Path(other.address.removeprefix("unix:") + FRAMED_SUFFIX).exists()


async def test_work_of_a_gateway_that_is_gone_leaves_the_queue(start_tulip: StartTulip) -> None:
    port = free_port()
    tulip = await start_tulip(local_stream=True, metrics_port=port)
    stream = await opened(tulip)
    tulip.engine.hold()
    await stream.send({1: [[1]], 2: [[2]]})
    await tulip.begun(1)
    stream.call.cancel()
    await scrape_until(port, items("cancelled"), lambda cancelled: cancelled >= 2)
    tulip.engine.release()


async def test_a_cancelled_item_is_answered_cancelled(local: Running) -> None:
    stream = await opened(local)
    local.engine.hold()
    await stream.send({1: [[1]]})
    await local.begun(1)
    await stream.send({2: [[2]]}, cancel=[1])
    result = (await stream.receive(1))[1]
    assert error_from_proto(result.error).code is ErrorCode.CANCELLED
    local.engine.release()
    stream.assert_rows((await stream.receive(1))[2])
    stream.call.cancel()


@pytest.mark.parametrize("message", [b"\xff" * 10, b"\x0a\xff"])
async def test_what_is_no_message_ends_that_connection_alone(
    local: Running, message: bytes
) -> None:
    good = await opened(local)
    bad = await FramedStream.connect(local.address.removeprefix("unix:") + FRAMED_SUFFIX)
    await bad.write(message)
    assert await bad.read() is None
    bad.close()
    await bad.wait_closed()
    await good.send({1: [[1]]})
    good.assert_rows((await good.receive(1))[1])
    good.call.cancel()


async def test_an_id_that_is_in_flight_already_ends_the_stream(
    local: Running, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await opened(local)
    local.engine.hold()
    await stream.send({1: [[1]]})
    await local.begun(1)
    await stream.send({1: [[2]]})
    assert await ended(stream.call)
    assert "id 1 is in flight already" in caplog.text
    local.engine.release()


async def test_a_drain_finishes_what_is_in_flight_and_ends_the_stream(local: Running) -> None:
    stream = await opened(local)
    local.engine.hold()
    await stream.send({1: [[1]], 2: [[2]]})
    await local.begun(1)
    local.stop.set()
    while (await stream_code(stream)) is not ErrorCode.UNAVAILABLE:
        await asyncio.sleep(0.01)
    local.engine.release()
    for result in (await stream.receive(2)).values():
        stream.assert_rows(result)
    assert await ended(stream.call)
    async with asyncio.timeout(WAIT_S):
        assert await local.exit_code == 0
    assert not Path(local.address.removeprefix("unix:") + FRAMED_SUFFIX).exists()


async def stream_code(stream: ClientStream) -> ErrorCode:
    """Of an item that is too long for the model, or refused before that is looked at."""
    await stream.send({9: [[1]]}, timeout_ms=1)
    return error_from_proto((await stream.receive(1))[9].error).code


async def test_a_gateway_that_does_not_read_is_not_read_from_either(
    local: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotbed.tulip.stream.MAX_UNSENT_BYTES", 100_000)
    slow, other = await opened(local), await opened(local)

    async def flood() -> None:
        for tag in range(3000):
            await slow.send({tag: [[1] * 100] * 60})

    flooding = asyncio.ensure_future(flood())
    previous = -1
    while len(local.engine.steps) > previous + 50:  # until it computes for the other alone
        previous = len(local.engine.steps)
        for i in range(20):
            await other.send({i: [[2]]})
            other.assert_rows((await other.receive(1))[i])
    assert not flooding.done()
    flooding.cancel()
    slow.call.cancel()
    other.call.cancel()
    await asyncio.wait({flooding})


def test_it_needs_a_unix_socket() -> None:
    with pytest.raises(ValueError, match="local_stream needs listen"):
        TulipSettings(listen="127.0.0.1:0", local_stream=True)
    with pytest.raises(ValueError, match="way round"):
        TulipSettings(listen="unix:/x", local_stream=True, tls_cert=Path("a"), tls_key=Path("b"))
    with pytest.raises(ValueError, match="107"):
        TulipSettings(listen="unix:/" + "x" * 104, local_stream=True)
