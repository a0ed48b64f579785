"""Gateways and replicas inside the test's event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from hotbed.checkpoint.records import Prompts
from hotbed.core.errors import HotbedError
from hotbed.core.model_info import ModelInfo
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.ivy.app import Gateway
from hotbed.ivy.expected import ExpectedModel
from hotbed.ivy.replica import SERVICE
from hotbed.ivy.served_model import ServedModel
from hotbed.ivy.server import Server, bind
from hotbed.ivy.settings import IvySettings
from hotbed.text.pairs import PairTokenizer
from hotbed.text.tokenizer import EncodeOptions, Tokenizer
from hotbed.tulip.server import serve as serve_tulip
from hotbed.tulip.settings import TulipSettings
from hotbed.tulip.testing import FAKE_INFO, FakeEngine, expected_rows
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire.codec import decode_output, decode_ragged, encode_info, encode_rows
from hotbed.wire.errors import error_to_proto
from hotbed.wire.limits import Limits, server_options
from hotbed.wire.tulip_pb2_grpc import TulipServicer, add_TulipServicer_to_server

MODEL = "org/tiny"
PROMPTS = Prompts(by_name={"query": "query: ", "document": "passage: "})
LIMITS = Limits(
    max_step_tokens=256,
    max_step_sequences=16,
    max_queue_tokens=100_000,
    max_item_sequences=64,
    max_item_tokens=4096,
    max_stream_items=256,
)


def info_for(tokenizer: Tokenizer, **changes: Any) -> ModelInfo:
    """What a replica that fits the tokenizer says."""
    base = replace(
        FAKE_INFO,
        name=MODEL,
        max_tokens=tokenizer.max_tokens,
        vocab_size=tokenizer.vocab_size,
    )
    return replace(base, **changes)


def model_for(tokenizer: Tokenizer) -> ServedModel:
    return ServedModel(
        names=(MODEL, "tiny", "alias"),
        tokenizer=tokenizer,
        prompts=PROMPTS,
        expected=ExpectedModel(MODEL, tokenizer.vocab_size, tokenizer.max_tokens),
    )


def score_info(pairs: PairTokenizer, labels: int = 1) -> Any:
    return info_for(
        pairs._tokenizer,
        task="score",
        dimensions=labels,
        labels=tuple(f"LABEL_{i}" for i in range(labels)),
        activation="sigmoid",
        normalize=False,
        token_types=2,
    )


def score_model(pairs: PairTokenizer) -> ServedModel:
    tokenizer = pairs._tokenizer
    expected = ExpectedModel(MODEL, tokenizer.vocab_size, tokenizer.max_tokens, "score")
    return ServedModel(
        names=(MODEL, "tiny"), tokenizer=tokenizer, prompts=PROMPTS, expected=expected, pairs=pairs
    )


def settings_for(*addresses: str, **changes: Any) -> IvySettings:
    """Settings with short times, so that tests of failure are quick."""
    values: dict[str, Any] = {
        "unavailable_wait_s": 5.0,
        "max_backoff_s": 0.05,
        "request_timeout_s": 20.0,
        "keep_alive_s": 20.0,
        "drain_delay_s": 0.0,
        "drain_timeout_s": 5.0,
    }
    return IvySettings(model=MODEL, replicas=addresses, port=0, **{**values, **changes})


Answer = Callable[[pb.Item], Awaitable[pb.Rows]]


class ScriptedTulip(TulipServicer):
    """A replica that answers each item with what `answer` returns, or the HotbedError it raises.

    Attributes:
        items: all items received.
        messages: number of items in each message received.
        cancelled: ids the gateway took back.
    """

    def __init__(self, info: ModelInfo, limits: Limits = LIMITS) -> None:
        self.info, self.limits = info, limits
        self.answer: Answer = self.rows
        self.items: list[pb.Item] = []
        self.messages: list[int] = []
        self.cancelled: list[int] = []
        self.changed = asyncio.Event()
        self._server: grpc.aio.Server | None = None
        self._health: Any = None

    async def rows(self, item: pb.Item) -> pb.Rows:
        """The fake engine's rows."""
        batch, spec = decode_ragged(item.batch), decode_output(item.output)
        rows = expected_rows(batch, spec, info=self.info)
        timings = pb.Timings(queue_us=10, device_us=20, total_us=30)
        return encode_rows(rows, spec, timings, self.info.fingerprint)

    async def Info(self, request: pb.InfoRequest, context: Any) -> pb.InfoReply:
        return encode_info(self.info, self.limits, "test")

    async def Stream(self, requests: Any, context: Any) -> None:
        lock = asyncio.Lock()
        async with asyncio.TaskGroup() as group:
            async for request in requests:
                self.messages.append(len(request.items))
                self.items.extend(request.items)
                self.cancelled.extend(request.cancel)
                self.changed.set()
                for item in request.items:
                    group.create_task(self._answer(item, context, lock))

    async def _answer(self, item: pb.Item, context: Any, lock: asyncio.Lock) -> None:
        try:
            result = pb.ItemResult(id=item.id, rows=await self.answer(item))
        except HotbedError as error:
            result = pb.ItemResult(id=item.id, error=error_to_proto(error))
        async with lock:
            await context.write(pb.StreamReply(results=[result]))

    async def start(self, address: str) -> None:
        self._server = grpc.aio.server(options=server_options())
        add_TulipServicer_to_server(self, self._server)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        await self.set_serving(True)
        self._server.add_insecure_port(address)
        await self._server.start()

    async def set_serving(self, is_serving: bool) -> None:
        status = health_pb2.HealthCheckResponse
        await self._health.set(SERVICE, status.SERVING if is_serving else status.NOT_SERVING)

    async def kill(self) -> None:
        """Break all streams at once, answer nothing."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def wait_for_items(self, num_items: int) -> None:
        while len(self.items) < num_items:
            self.changed.clear()
            await self.changed.wait()


@contextlib.asynccontextmanager
async def scripted(info: ModelInfo, address: str, limits: Limits = LIMITS) -> AsyncIterator[Any]:
    tulip = ScriptedTulip(info, limits)
    await tulip.start(address)
    try:
        yield tulip
    finally:
        await tulip.kill()


@contextlib.asynccontextmanager
async def real_tulip(
    engine: FakeEngine, address: str, **changes: Any
) -> AsyncIterator[asyncio.Event]:
    """The real Tulip service over a fake engine; set the event to stop it, as SIGTERM would."""
    values: dict[str, Any] = {"max_step_tokens": 256, "max_step_sequences": 16, **changes}
    settings = TulipSettings(model=engine.info.name, listen=address, **values)
    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.ensure_future(
        serve_tulip(settings, lambda _: engine, stop=stop, on_ready=lambda _: ready.set())
    )
    try:
        await ready.wait()
        yield stop
    finally:
        engine.release()
        stop.set()
        await task


async def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Until the condition holds; for what gives no signal."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.002)


def gateway_tasks() -> list[asyncio.Task[Any]]:
    """Tasks of the gateway's own code that have not ended."""
    tasks = asyncio.all_tasks()
    return [t for t in tasks if "/hotbed/ivy/" in t.get_coro().cr_code.co_filename]


@contextlib.asynccontextmanager
async def in_process(
    settings: IvySettings, *models: ServedModel, num_up: int | None = None
) -> AsyncIterator[tuple[Gateway, httpx.AsyncClient]]:
    """A gateway without an HTTP server, and a client that calls it directly."""
    gateway = Gateway(settings, *models)
    gateway.models.start()
    transport = httpx.ASGITransport(app=gateway, raise_app_exceptions=True)
    try:
        await wait_until(lambda: _are_up(gateway, num_up))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://ivy", timeout=30
        ) as client:
            yield gateway, client
    finally:
        await gateway.close()


def _are_up(gateway: Gateway, num_up: int | None) -> bool:
    if num_up is not None:
        return gateway.pool.num_up >= num_up
    pools = [service.pool for service in gateway.models.services]
    return all(pool.num_up == len(pool.replicas) for pool in pools)


class Running:
    """A gateway behind its real HTTP server."""

    def __init__(self, gateway: Gateway, server: Server, port: int) -> None:
        self.gateway, self.server, self.port = gateway, server, port
        self.url = f"http://127.0.0.1:{port}"
        self.task: asyncio.Task[None] | None = None

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, timeout=30, trust_env=False)


@contextlib.asynccontextmanager
async def serving(
    settings: IvySettings, *models: ServedModel, num_up: int | None = None
) -> AsyncIterator[Running]:
    """A gateway behind its real HTTP server, on a free port."""
    gateway = Gateway(settings, *models)
    server = Server(gateway, settings)
    with bind("127.0.0.1", 0, backlog=128) as listener:
        running = Running(gateway, server, listener.getsockname()[1])
        running.task = asyncio.ensure_future(server.serve(sockets=[listener]))
        try:
            await wait_until(lambda: server.started)
            await wait_until(lambda: _are_up(gateway, num_up))
            yield running
        finally:
            if not running.task.done():
                server.stop()
            await running.task


def rows_of(answer: dict[str, Any]) -> np.ndarray:
    """float32 [n, width] of an answer in float encoding, in the order of the indexes."""
    assert [row["index"] for row in answer["data"]] == list(range(len(answer["data"])))
    return np.array([row["embedding"] for row in answer["data"]], dtype=np.float32)


def expected_for(
    tokenizer: Tokenizer,
    texts: list[str],
    spec: OutputSpec | int = 0,
    options: EncodeOptions | None = None,
) -> tuple[np.ndarray, int]:
    """(rows, tokens) that the fake engine gives for the texts."""
    batch: RaggedBatch = tokenizer.encode(texts, options or EncodeOptions()).batch
    rows = expected_rows(batch, spec, info=info_for(tokenizer))
    return rows, batch.num_tokens


def unix_address(folder: Path, name: str = "t") -> str:
    return f"unix:{folder / name}.sock"
