"""A whole Tulip in the test's own event loop: fake engine, real gRPC over a Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import Engine
from hotbed.tulip.server import serve
from hotbed.tulip.settings import TulipSettings
from hotbed.tulip.testing import FakeEngine, expected_rows
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire import tulip_pb2_grpc as pb_grpc
from hotbed.wire.codec import decode_rows, encode_output, encode_ragged
from hotbed.wire.limits import channel_options

WAIT_S = 20.0
"""Bound of every wait in these tests: only a hang reaches it."""


class StartTulip(Protocol):
    """Starts a server; keyword arguments are settings."""

    def __call__(
        self, load: Callable[[TulipSettings], Engine] | None = None, **settings: Any
    ) -> Awaitable[Running]: ...


@dataclass
class Running:
    """A server that runs, and a channel to it."""

    engine: FakeEngine
    address: str
    stop: asyncio.Event
    exit_code: asyncio.Task[int]
    channel: grpc.aio.Channel
    stub: pb_grpc.TulipStub = field(init=False)

    def __post_init__(self) -> None:
        self.stub = pb_grpc.TulipStub(self.channel)
        # The server's own first step has begun already.
        self.steps_before = len(self.engine.steps)

    async def begun(self, num_steps: int) -> None:
        """Wait until this many steps after the start have begun."""
        await asyncio.to_thread(self.engine.wait_begun, self.steps_before + num_steps)

    async def open_items(self, num_items: int) -> None:
        """Wait until exactly this many are open; calls of one connection may pass each other."""
        async with asyncio.timeout(WAIT_S):
            while (await self.stub.Stats(pb.StatsRequest())).open_items != num_items:
                await asyncio.sleep(0.01)

    async def embed(self, ids: Sequence[Sequence[int]], timeout: float = WAIT_S) -> pb.Rows:
        request = pb.EmbedRequest(batch=ragged(ids))
        return (await self.stub.Embed(request, timeout=timeout)).rows

    async def health(self, service: str = "") -> int:
        stub = health_pb2_grpc.HealthStub(self.channel)
        reply = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=WAIT_S)
        return reply.status

    def open_stream(self, timeout: float = WAIT_S) -> ClientStream:
        return ClientStream(self.stub.Stream(timeout=timeout))


class ClientStream:
    """The client's end of a stream, with the items it sent."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.sent: dict[int, tuple[Sequence[Sequence[int]], OutputSpec]] = {}

    async def send(
        self,
        items: dict[int, Sequence[Sequence[int]]],
        *,
        spec: OutputSpec | None = None,
        timeout_ms: int = 0,
        cancel: Sequence[int] = (),
        tenant: bytes = b"",
    ) -> None:
        """One message: items by id, and ids to cancel."""
        request = pb.StreamRequest(cancel=cancel)
        for tag, ids in items.items():
            item = request.items.add(
                id=tag, batch=ragged(ids), timeout_ms=timeout_ms, tenant=tenant
            )
            encode_output(spec or OutputSpec(), into=item.output)
            self.sent[tag] = (ids, spec or OutputSpec())
        await self.call.write(request)

    async def receive(self, num_results: int) -> dict[int, pb.ItemResult]:
        """Read until this many results are there; a second answer to an id is an error."""
        results: dict[int, pb.ItemResult] = {}
        while len(results) < num_results:
            async with asyncio.timeout(WAIT_S):
                reply = await self.call.read()
            assert reply is not grpc.aio.EOF, "the stream ended early"
            for result in reply.results:
                assert result.id not in results, "answered twice"
                results[result.id] = result
        return results

    def assert_rows(self, result: pb.ItemResult) -> None:
        """The result holds just the rows that its item asked for."""
        assert result.WhichOneof("result") == "rows", result
        ids, spec = self.sent[result.id]
        np.testing.assert_array_equal(decode_rows(result.rows), expected_rows(ids, spec))


def ragged(ids: Sequence[Sequence[int]]) -> pb.Ragged:
    return encode_ragged(RaggedBatch.from_sequences(ids))


@pytest.fixture
async def start_tulip(tmp_path: Path) -> AsyncIterator[StartTulip]:
    """Starts servers, and stops them after the test."""
    started: list[Running] = []

    async def start(
        load: Callable[[TulipSettings], Engine] | None = None, **settings: Any
    ) -> Running:
        engine = FakeEngine()
        address = f"unix:{tmp_path / f'{len(started)}.sock'}"
        stop, ready = asyncio.Event(), asyncio.Event()

        async def serve_to_the_end() -> int:
            ending = await serve(
                TulipSettings(listen=address, **settings),
                load or (lambda _: engine),
                stop=stop,
                on_ready=lambda _: ready.set(),
            )
            return ending.code

        exit_code = asyncio.ensure_future(serve_to_the_end())
        waiting = asyncio.ensure_future(ready.wait())
        if load is None:
            await asyncio.wait({waiting, exit_code}, return_when=asyncio.FIRST_COMPLETED)
            assert not exit_code.done(), "the server did not start"
        waiting.cancel()
        channel = grpc.aio.insecure_channel(address, options=channel_options())
        started.append(Running(engine, address, stop, exit_code, channel))
        return started[-1]

    yield start
    for running in started:
        running.engine.release()
        running.stop.set()
        await running.exit_code
        await running.channel.close()
        running.engine.close()


@pytest.fixture
async def tulip(start_tulip: StartTulip) -> Running:
    """A server with default settings."""
    return await start_tulip()
