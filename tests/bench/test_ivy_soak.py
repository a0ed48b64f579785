"""The gateway's soak in CI's size: every outcome as expected, memory that settles."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from bench import ivy_soak


@pytest.mark.weights
@pytest.mark.slow
def test_all_dialects_mixed_are_answered_and_memory_settles() -> None:
    row = ivy_soak.soak(3200, 8)
    assert row["wrong"] == 0, row["outcomes"]
    assert row["n"] == 3200
    for outcome in ("200", "400", "404", "left"):
        assert row["outcomes"][outcome] > 50
    # By hand 20,000 requests: 115.5 MiB after the first 4,000, 116.7 at the end (2026-11-30). A
    # leak of 10 kB a request, the texts and rows of one, would be 25 MiB here.
    assert row["rss_mib_last"] - row["rss_mib_settled"] < 16


async def test_a_wrong_status_is_counted_as_wrong() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.partition(b"Content-Length: ")[2]))
            writer.write(b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\n{}")

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        outcomes = await ivy_soak.one_round(port, 2 * ivy_soak.NUM_CLIENTS, 0)
    assert sum(outcomes.values()) == 2 * ivy_soak.NUM_CLIENTS
    assert all(outcome.startswith("503") and outcome.endswith("wrong") for outcome in outcomes)


def test_every_route_that_makes_work_is_asked() -> None:
    asked = {path for path, _, _ in itertools.islice(ivy_soak.requests(0), 22)}
    assert {"/v1/embeddings", "/v2/embed", "/embed", "/pooling", "/v1/rerank", "/predict"} <= asked
    assert len(asked) >= 15
