"""The HTTP server around the application: clients that leave, big bodies, the orderly stop."""

from __future__ import annotations

import asyncio
import json
import socket

import httpx
import pytest

from hotbed.ivy.server import Server, bind
from hotbed.wire import tulip_pb2 as pb
from tests.ivy.harness import (
    Running,
    gateway_tasks,
    info_for,
    scripted,
    serving,
    settings_for,
    unix_address,
    wait_until,
)


@pytest.fixture
async def tulip(tokenizer, tmp_path):
    async with scripted(info_for(tokenizer), unix_address(tmp_path)) as tulip:
        tulip.address = unix_address(tmp_path)
        yield tulip


class Gate:
    """Holds a replica's answers back until opened."""

    def __init__(self, tulip) -> None:
        self.opened = asyncio.Event()
        self._tulip = tulip
        tulip.answer = self._answer

    async def _answer(self, item: pb.Item) -> pb.Rows:
        await self.opened.wait()
        return await self._tulip.rows(item)


def raw_post(value) -> bytes:
    body = json.dumps({"input": value}).encode()
    head = (
        "POST /v1/embeddings HTTP/1.1\r\nHost: ivy\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def test_a_client_that_leaves_has_its_work_taken_back(model, tulip):
    Gate(tulip)
    settings = settings_for(tulip.address, max_chunks_per_replica=2)
    async with serving(settings, model) as ivy:
        _, writer = await asyncio.open_connection("127.0.0.1", ivy.port)
        writer.write(raw_post(["the cat"] * 100))
        await tulip.wait_for_items(2)
        writer.close()
        await wait_until(lambda: sorted(tulip.cancelled) == [0, 1])
        await wait_until(lambda: ivy.gateway.door.num_in_flight == 0)
        assert len(tulip.items) == 2
        assert ivy.gateway.pool._balance.outstanding(0) == 0
        async with ivy.client() as client:
            assert 'status="499"} 1.0' in (await client.get("/metrics")).text


async def test_a_client_that_leaves_within_its_body_frees_its_place(model, tulip):
    async with serving(settings_for(tulip.address, max_requests_in_flight=1), model) as ivy:
        _, writer = await asyncio.open_connection("127.0.0.1", ivy.port)
        writer.write(raw_post("the cat")[:-3])
        await wait_until(lambda: ivy.gateway.door.num_in_flight == 1)
        writer.close()
        await wait_until(lambda: ivy.gateway.door.num_in_flight == 0)
        async with ivy.client() as client:
            answer = await client.post("/v1/embeddings", json={"input": "the cat"})
            assert answer.status_code == 200


async def test_a_body_that_never_ends_is_408(model, tulip):
    async with serving(settings_for(tulip.address, request_timeout_s=0.05), model) as ivy:
        reader, writer = await asyncio.open_connection("127.0.0.1", ivy.port)
        writer.write(raw_post("the cat")[:-3])
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in answer


async def test_a_body_of_5_mb_works_and_health_answers_meanwhile(model, tulip):
    async with serving(settings_for(tulip.address), model) as ivy, ivy.client() as client:
        body = json.dumps({"input": ["a" * 2500] * 2048}).encode()
        assert len(body) > 5_000_000
        post = asyncio.ensure_future(
            client.post(
                "/v1/embeddings", content=body, headers={"Content-Type": "application/json"}
            )
        )
        num_healthy = 0
        while not post.done():
            assert (await client.get("/health")).status_code == 200
            num_healthy += 1
        answer = await post
        assert answer.status_code == 200, answer.text[:500]
        assert len(answer.json()["data"]) == 2048
        assert num_healthy > 5


async def test_a_text_that_is_too_long_to_look_at_gets_a_clear_answer(model, tulip):
    async with serving(settings_for(tulip.address), model) as ivy, ivy.client() as client:
        answer = await client.post("/v1/embeddings", json={"input": "a b " * 1_300_000})
        assert answer.status_code == 413
        assert answer.json()["error"]["param"] == "input"


async def ask(ivy: Running, client: httpx.AsyncClient, tulip, num_items: int = 1):
    """A request that has reached the replica."""
    asking = asyncio.ensure_future(client.post("/v1/embeddings", json={"input": "the cat"}))
    await tulip.wait_for_items(num_items)
    return asking


async def test_a_stop_lets_requests_in_flight_finish(model, tulip):
    # Case 127: SIGTERM aborted what was in flight.
    gate = Gate(tulip)
    async with serving(settings_for(tulip.address), model) as ivy, ivy.client() as client:
        asking = await ask(ivy, client, tulip)
        ivy.server.stop()
        await wait_until(lambda: ivy.server.should_exit)
        await wait_until(lambda: not ivy.server.servers[0].is_serving())
        with pytest.raises(httpx.ConnectError):
            async with ivy.client() as late:
                await late.get("/health")
        gate.opened.set()
        answer = await asking
        assert answer.status_code == 200
        assert answer.headers["connection"] == "close"
        assert ivy.task is not None
        await ivy.task


async def test_before_it_stops_accepting_ready_says_so(model, tulip):
    settings = settings_for(tulip.address, drain_delay_s=30)
    async with serving(settings, model) as ivy, ivy.client() as client:
        ivy.server.stop()
        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()["status"]) == (503, "draining")
        assert (await client.get("/health")).status_code == 200
        answer = await client.post("/v1/embeddings", json={"input": "the cat"})
        assert answer.status_code == 200
        # Case 129: a client that keeps its connection would be reset when it is closed.
        assert answer.headers["connection"] == "close"
        ivy.server.stop()
        assert ivy.task is not None
        await ivy.task


async def test_the_wait_is_bounded_then_it_is_503(model, tulip):
    Gate(tulip)
    settings = settings_for(tulip.address, drain_timeout_s=0.05)
    async with serving(settings, model) as ivy, ivy.client() as client:
        asking = await ask(ivy, client, tulip)
        ivy.server.stop()
        answer = await asking
        assert answer.status_code == 503
        assert "stopping" in answer.json()["error"]["message"]
        assert answer.headers["retry-after"] == "1"


async def test_no_task_is_left_after_a_stop(model, tulip):
    async with serving(settings_for(tulip.address), model) as ivy, ivy.client() as client:
        for _ in range(3):
            await client.post("/v1/embeddings", json={"input": "the cat"})
        assert gateway_tasks()
    assert not gateway_tasks()


async def test_an_idle_connection_is_kept_for_as_long_as_set(model, tulip):
    # Case 129: closed after 5 s while the client's pool kept it for 90 s.
    settings = settings_for(tulip.address, keep_alive_s=0.05)
    async with serving(settings, model) as ivy:
        reader, writer = await asyncio.open_connection("127.0.0.1", ivy.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: ivy\r\n\r\n")
        answer = await reader.read()  # returns when the server closes
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200 ")
    assert (
        Server(ivy.gateway, settings_for("a:1", keep_alive_s=180)).config.timeout_keep_alive == 180
    )


async def test_no_answer_waits_for_the_clients_ack(model, tulip):
    """Head and body are two writes; Nagle's algorithm would hold the second back for 40 ms."""
    async with serving(settings_for(tulip.address), model) as ivy, ivy.client() as client:
        assert (await client.get("/health")).status_code == 200
        (connection,) = ivy.server.server_state.connections
        taken = connection.transport.get_extra_info("socket")
        assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_two_processes_can_share_a_port():
    with bind("127.0.0.1", 0, backlog=1) as one:
        port = one.getsockname()[1]
        with bind("127.0.0.1", port, backlog=1) as two:
            assert two.getsockname()[1] == port


def test_ipv6_addresses_are_understood():
    with bind("::1", 0, backlog=1) as listener:
        assert listener.getsockname()[0] == "::1"
