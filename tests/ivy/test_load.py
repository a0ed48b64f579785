"""Under load: nobody is held up, small requests pass large ones, memory stays flat."""

from __future__ import annotations

import asyncio
import gc
import json
import time

import numpy as np
import psutil
import pytest

from hotbed.tulip.testing import FakeEngine
from tests.ivy.harness import (
    expected_for,
    info_for,
    model_for,
    real_tulip,
    rows_of,
    scripted,
    serving,
    settings_for,
    unix_address,
)

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def longest_turn(monkeypatch):
    """Most CPU seconds that one callback took; CPU, so that a busy machine is no fault of ours."""
    longest = [0.0]
    run = asyncio.Handle._run

    def timed(handle):
        start = time.thread_time()
        run(handle)
        longest[0] = max(longest[0], time.thread_time() - start)

    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    return longest


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": ["a" * 2500] * 2048}),
        ("/v1/embeddings", {"input": ["the cat is in the house"] * 2000}),
        ("/v1/embeddings", {"input": [[7, 8, 9] * 20] * 2048}),
        ("/v1/embeddings", {"input": ["the cat"] * 2048, "encoding_format": "base64"}),
        ("/embed", {"inputs": ["the cat is in the house"] * 2000}),
        ("/v2/embed", {"texts": ["the cat"] * 2000, "embedding_types": ["float", "int8"]}),
        ("/tokenize", {"prompt": "the cat " * 100_000}),
    ],
    ids=["5 MB", "2,000 texts", "2,048 id lists", "base64", "TEI", "Cohere", "tokenize"],
)
async def test_no_request_holds_the_event_loop(model, info, addresses, longest_turn, path, body):
    """So /health, which needs a turn, waits for less than that."""
    content = json.dumps(body).encode()
    async with (
        scripted(info, addresses[0]),
        serving(settings_for(addresses[0]), model) as ivy,
        ivy.client() as client,
    ):
        await client.get("/health")
        turns = []
        for _ in range(3):  # what holds it does so every time; the collector only now and then
            longest_turn[0] = 0.0
            # The client decodes its answer in a turn of its own: the raw answer is enough.
            async with client.stream("POST", path, content=content, headers=JSON) as answer:
                async for _ in answer.aiter_raw():
                    pass
                assert answer.status_code == 200
            turns.append(longest_turn[0])
        assert min(turns) < 0.05


async def test_small_requests_pass_a_huge_one(tokenizer, tmp_path):
    """A huge request has only a few chunks in flight, so others get between them."""
    address = unix_address(tmp_path)
    engine = FakeEngine(info_for(tokenizer), step_s=0.005)
    async with (
        real_tulip(engine, address),
        serving(settings_for(address), model_for(tokenizer)) as ivy,
        ivy.client() as client,
    ):
        huge = ["the cat is a fast dog in this house"] * 2048
        asking = asyncio.ensure_future(client.post("/v1/embeddings", json={"input": huge}))
        before = len(engine.steps)
        await asyncio.to_thread(engine.wait_begun, before + 3)
        answered, steps_taken = 0, []
        while not asking.done():
            began = len(engine.steps)
            answer = await client.post("/v1/embeddings", json={"input": f"cat {answered}"})
            if asking.done():
                break
            steps_taken.append(len(engine.steps) - began)
            rows, _ = expected_for(tokenizer, [f"cat {answered}"])
            assert np.array_equal(rows_of(answer.json()), rows)
            answered += 1
        assert (await asking).status_code == 200
        num_steps = len(engine.steps) - before
        assert num_steps > 60
        # Behind three chunks and two running steps; all of it shares one event loop here, so more
        # steps pass meanwhile than on a server. Waiting for the whole would be all of them.
        assert np.median(steps_taken) <= 20
        assert answered > num_steps / 40


async def ask(reader, writer, body: bytes) -> None:
    head = (
        f"POST /v1/embeddings HTTP/1.1\r\nHost: ivy\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    length = int(answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)


@pytest.mark.slow
async def test_memory_is_flat_over_thousands_of_requests(model, info, addresses):
    """Cases of servers that grew until they were killed; 10,000 requests were looked at by hand."""
    process = psutil.Process()
    async with (
        scripted(info, addresses[0]) as tulip,
        serving(settings_for(addresses[0]), model) as ivy,
    ):

        async def client(number: int, count: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", ivy.port)
            for i in range(count):
                await ask(reader, writer, json.dumps({"input": f"cat {number} {i}"}).encode())
                tulip.items.clear()
                tulip.messages.clear()
            writer.close()

        async def round_of(count: int) -> int:
            await asyncio.gather(*(client(number, count) for number in range(8)))
            gc.collect()
            return process.memory_info().rss

        await round_of(30)
        before = await round_of(30)
        after = await round_of(120)
        assert after - before < 6 * 1024 * 1024
        assert ivy.gateway.door.num_in_flight == 0
