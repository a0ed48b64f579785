"""The life of a server: health, loading, engine death, drain. Cases: 114, 122, 127, 128."""

from __future__ import annotations

import asyncio
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from hotbed.core.errors import ErrorCode, HotbedError, invalid
from hotbed.core.exit_codes import EXIT_CONFIGURATION, EXIT_FAILURE
from hotbed.core.step import Engine
from hotbed.tulip.server import Ending, serve
from hotbed.tulip.settings import TulipSettings
from hotbed.tulip.testing import FakeEngine
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.errors import error_from_proto, error_from_rpc
from tests.tulip.conftest import WAIT_S, Running, StartTulip, ragged

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
NAMES = ("", "hotbed.tulip.v1.Tulip")


async def unary_error(tulip: Running) -> HotbedError:
    with pytest.raises(grpc.RpcError) as caught:
        await tulip.embed([[1]])
    return error_from_rpc(caught.value)


async def wait_for_health(tulip: Running, status: int) -> None:
    """Watch the health until it has this status."""
    stub = health_pb2_grpc.HealthStub(tulip.channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=WAIT_S)
    while (await watch.read()).status != status:
        pass
    watch.cancel()


async def run(load: Callable[[TulipSettings], Engine], **settings: object) -> int:
    """Exit code of a server that does not get as far as to serve."""
    async with asyncio.timeout(WAIT_S):
        ending = await serve(
            TulipSettings(**{"listen": "127.0.0.1:0", **settings}),
            load,
            stop=asyncio.Event(),
            on_ready=lambda _: pytest.fail("it became ready"),
        )
        return ending.code


@pytest.mark.parametrize("name", NAMES)
async def test_a_server_that_is_ready_says_serving_under_both_names(
    tulip: Running, name: str
) -> None:
    assert await tulip.health(name) == SERVING


async def test_ready_comes_after_a_real_step(tulip: Running) -> None:
    assert list(tulip.engine.steps)[: tulip.steps_before] == [(1, 1)]


async def test_reflection_lists_the_services(tulip: Running) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(tulip.channel)
    call = stub.ServerReflectionInfo(timeout=WAIT_S)
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    reply = await call.read()
    names = {s.name for s in reply.list_services_response.service}
    assert {"hotbed.tulip.v1.Tulip", "grpc.health.v1.Health"} <= names
    await call.done_writing()


async def test_while_the_model_loads_health_says_no_and_calls_are_unavailable(
    start_tulip: StartTulip,
) -> None:
    may_load = threading.Event()
    engine = FakeEngine()

    def load(_: TulipSettings) -> Engine:
        may_load.wait(WAIT_S)
        return engine

    tulip = await start_tulip(load)
    assert await tulip.health() == NOT_SERVING
    error = await unary_error(tulip)
    assert error.code is ErrorCode.UNAVAILABLE
    assert "loading" in error.message
    with pytest.raises(grpc.RpcError) as caught:
        await tulip.stub.Info(pb.InfoRequest(), timeout=WAIT_S)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(grpc.RpcError) as caught:
        await tulip.open_stream().call.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    may_load.set()
    await wait_for_health(tulip, SERVING)
    await tulip.embed([[1]])


async def test_a_stop_while_the_model_loads_ends_the_server(tmp_path: Path) -> None:
    may_load, loading, stop = threading.Event(), threading.Event(), asyncio.Event()

    def load(_: TulipSettings) -> Engine:
        loading.set()
        may_load.wait(WAIT_S)
        raise OSError("nobody waits for this any more")

    settings = TulipSettings(listen=f"unix:{tmp_path / 's'}")
    serving = asyncio.ensure_future(serve(settings, load, stop=stop, on_ready=print))
    await asyncio.to_thread(loading.wait, WAIT_S)
    stop.set()
    async with asyncio.timeout(WAIT_S):
        assert await serving == Ending(code=0, is_device_busy=True)
    may_load.set()


async def test_a_model_that_cannot_be_loaded_is_a_configuration_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def load(_: TulipSettings) -> Engine:
        raise invalid("config.json: model_type 'x' is not supported")

    assert await run(load) == EXIT_CONFIGURATION
    assert "model_type 'x' is not supported" in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_loader_that_breaks_is_a_failure_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def load(_: TulipSettings) -> Engine:
        raise RuntimeError("no such driver")

    assert await run(load) == EXIT_FAILURE
    assert "no such driver" in caplog.text
    assert "Traceback" in caplog.text


async def test_a_model_too_long_for_the_limits_is_a_configuration_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    code = await run(lambda _: FakeEngine(), max_item_tokens=511)
    assert code == EXIT_CONFIGURATION
    assert "max_item_tokens (511) is below the model's longest sequence (512" in caplog.text


async def test_a_model_whose_first_step_is_not_finite_never_serves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = FakeEngine()
    engine.non_finite.add(0)
    assert await run(lambda _: engine) == EXIT_FAILURE
    assert "first step failed" in caplog.text


async def test_an_address_in_use_is_found_before_the_model_is_loaded(
    tulip: Running, caplog: pytest.LogCaptureFixture
) -> None:
    def load(_: TulipSettings) -> Engine:
        raise AssertionError("the model was loaded")

    assert await run(load, listen=tulip.address) == EXIT_FAILURE
    assert "a process listens there already" in caplog.text
    await tulip.embed([[1]])  # its socket is still there


async def test_a_tcp_port_in_use_is_refused_and_not_shared(
    start_tulip: StartTulip, caplog: pytest.LogCaptureFixture
) -> None:
    stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    engine = FakeEngine()
    settings = TulipSettings(listen="127.0.0.1:0")
    serving = asyncio.ensure_future(
        serve(settings, lambda _: engine, stop=stop, on_ready=address.set_result)
    )
    listen = await address
    assert listen.startswith("127.0.0.1:")
    assert not listen.endswith(":0")
    assert await run(lambda _: FakeEngine(), listen=listen) == EXIT_FAILURE
    assert f"cannot listen on {listen}" in caplog.text
    stop.set()
    assert await serving == (0, False)


async def test_a_dead_engine_answers_every_waiter_turns_health_and_ends_the_process(
    tulip: Running, caplog: pytest.LogCaptureFixture
) -> None:
    tulip.engine.hold()
    stream = tulip.open_stream()
    await stream.send({1: [[1]]})
    await tulip.begun(1)
    await stream.send({i: [[i]] for i in range(2, 10)})
    unary = asyncio.ensure_future(tulip.embed([[5]]))
    await tulip.open_items(10)
    health = asyncio.ensure_future(wait_for_health(tulip, NOT_SERVING))
    tulip.engine.die()
    for result in (await stream.receive(9)).values():
        assert error_from_proto(result.error).code is ErrorCode.UNAVAILABLE
    with pytest.raises(grpc.RpcError) as caught:
        await unary
    assert error_from_rpc(caught.value).code is ErrorCode.UNAVAILABLE
    await health
    async with asyncio.timeout(WAIT_S):
        assert await tulip.exit_code == EXIT_FAILURE
    assert "the engine is dead" in caplog.text


async def test_an_engine_that_is_dead_when_called_is_found_too(tulip: Running) -> None:
    tulip.engine.die()
    assert (await unary_error(tulip)).code is ErrorCode.UNAVAILABLE
    async with asyncio.timeout(WAIT_S):
        assert await tulip.exit_code == EXIT_FAILURE


async def test_a_step_that_hangs_is_the_engines_death(start_tulip: StartTulip) -> None:
    tulip = await start_tulip(step_timeout_s=0.05)
    tulip.engine.hold()
    assert (await unary_error(tulip)).code is ErrorCode.UNAVAILABLE
    tulip.engine.release()
    async with asyncio.timeout(WAIT_S):
        assert await tulip.exit_code == EXIT_FAILURE


async def test_drain_refuses_new_items_finishes_the_old_and_ends_streams(tulip: Running) -> None:
    stream = tulip.open_stream()
    tulip.engine.hold()
    await stream.send({1: [[1]], 2: [[2]]})
    await tulip.begun(1)
    unary = asyncio.ensure_future(tulip.embed([[3]]))
    await tulip.open_items(3)
    tulip.stop.set()
    await wait_for_health(tulip, NOT_SERVING)
    for name in NAMES:
        assert await tulip.health(name) == NOT_SERVING
    error = await unary_error(tulip)
    assert (error.code, error.message) == (ErrorCode.UNAVAILABLE, "the server is draining")
    assert error.retry_after_s
    await stream.send({3: [[3]]})
    refused = (await stream.receive(1))[3]
    assert error_from_proto(refused.error).code is ErrorCode.UNAVAILABLE
    assert not tulip.exit_code.done()
    tulip.engine.release()
    for result in (await stream.receive(2)).values():
        stream.assert_rows(result)
    assert (await unary).count == 1
    assert await stream.call.read() is grpc.aio.EOF
    async with asyncio.timeout(WAIT_S):
        assert await tulip.exit_code == 0
    assert tulip.engine.closed


async def test_a_drain_is_bounded_and_answers_what_is_left(start_tulip: StartTulip) -> None:
    tulip = await start_tulip(drain_timeout_s=0.05)
    stream = tulip.open_stream()
    tulip.engine.hold()
    await stream.send({1: [[1]], 2: [[2]]})
    await tulip.begun(1)
    tulip.stop.set()
    for result in (await stream.receive(2)).values():
        error = error_from_proto(result.error)
        assert (error.code, error.message) == (ErrorCode.UNAVAILABLE, "the server is stopping")
    assert await stream.call.read() is grpc.aio.EOF
    tulip.engine.release()
    async with asyncio.timeout(WAIT_S):
        assert await tulip.exit_code == 0


async def test_an_engine_that_dies_while_draining_ends_the_drain(tulip: Running) -> None:
    stream = tulip.open_stream()
    tulip.engine.hold()
    await stream.send({1: [[1]]})
    await tulip.begun(1)
    tulip.stop.set()
    await wait_for_health(tulip, NOT_SERVING)
    tulip.engine.die()
    result = (await stream.receive(1))[1]
    assert error_from_proto(result.error).code is ErrorCode.UNAVAILABLE
    async with asyncio.timeout(WAIT_S):
        assert await tulip.exit_code == EXIT_FAILURE


async def test_a_stale_socket_file_does_not_keep_a_server_from_starting(
    start_tulip: StartTulip, tmp_path: Path
) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(tmp_path / "0.sock"))
    assert (tmp_path / "0.sock").exists()
    tulip = await start_tulip()
    assert tulip.address.endswith("0.sock")
    await tulip.embed([[1]])


async def test_the_metrics_page_counts_and_a_probe_does_not_hang_with_it(
    start_tulip: StartTulip,
) -> None:
    port = free_port()
    tulip = await start_tulip(metrics_port=port)
    await tulip.embed([[1, 2], [3]])
    with pytest.raises(grpc.RpcError):
        await tulip.stub.Embed(pb.EmbedRequest(batch=ragged([[1] * 513])), timeout=WAIT_S)
    page = await asyncio.to_thread(read, f"http://127.0.0.1:{port}/metrics")
    assert 'hotbed_tulip_items_total{outcome="ok"} 2.0' in page  # the first step's and ours
    assert 'hotbed_tulip_items_total{outcome="invalid_input"} 1.0' in page
    assert "hotbed_tulip_queue_tokens 0.0" in page
    assert await tulip.health() == SERVING


async def test_a_metrics_port_in_use_is_a_clear_error(
    tulip: Running, caplog: pytest.LogCaptureFixture
) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert await run(lambda _: FakeEngine(), metrics_port=port) == EXIT_FAILURE
    assert f"metrics_port: cannot listen on 127.0.0.1:{port}" in caplog.text


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=WAIT_S) as reply:
        return str(reply.read().decode())
