"""Where replicas are."""

from __future__ import annotations

import asyncio
import socket

import pytest

from hotbed.core.errors import ErrorCode
from hotbed.ivy import hedge
from hotbed.ivy.resolve import resolve
from tests.ivy.asking import check, failing, post
from tests.ivy.harness import (
    in_process,
    scripted,
    settings_for,
    wait_until,
)


async def test_a_name_is_all_its_addresses(monkeypatch):
    asked = []

    async def getaddrinfo(host, port, **options):
        asked.append((host, port))
        return [
            (socket.AF_INET, 1, 6, "", ("10.0.0.2", port)),
            (socket.AF_INET, 1, 6, "", ("10.0.0.1", port)),
            (socket.AF_INET, 1, 6, "", ("10.0.0.1", port)),
            (socket.AF_INET6, 1, 6, "", ("fd00::1", port, 0, 0)),
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    found = await resolve(["a:1", "dns:tulip.svc:50051", "a:1"])
    assert found == ["a:1", "10.0.0.1:50051", "10.0.0.2:50051", "[fd00::1]:50051"]
    assert asked == [("tulip.svc", 50051)]


async def test_a_file_has_an_address_a_line(tmp_path):
    path = tmp_path / "replicas"
    path.write_text("# mine\n\na:1\n unix:/b  # b\n")
    assert await resolve([f"file:{path}"]) == ["a:1", "unix:/b"]
    path.write_text("dns:x:1")
    with pytest.raises(ValueError, match="only addresses"):
        await resolve([f"file:{path}"])


async def test_replicas_come_and_go_with_the_file_and_no_request_is_lost(
    tokenizer, model, info, addresses, tmp_path
):
    path = tmp_path / "replicas"
    path.write_text(addresses[0])
    settings = settings_for(f"file:{path}", replica_refresh_s=0.01)
    async with (
        scripted(info, addresses[0]) as first,
        scripted(info, addresses[1]) as second,
        in_process(settings, model, num_up=1) as (gateway, client),
    ):
        gate = asyncio.Event()

        async def late(item):
            await gate.wait()
            return await first.rows(item)

        first.answer = late
        asking = asyncio.ensure_future(post(client, ["the cat"]))
        await first.wait_for_items(1)
        path.write_text(addresses[1])
        await wait_until(lambda: [r.address for r in gateway.pool.replicas] == [addresses[1]])
        await wait_until(lambda: gateway.pool.num_up == 1)
        check(await post(client), tokenizer)
        assert second.items
        assert len(first.items) == 1
        metrics = (await client.get("/metrics")).text
        assert addresses[0] not in metrics
        assert addresses[1] in metrics
        gate.set()  # what the first one had is still answered
        check(await asking, tokenizer, ["the cat"])
        await wait_until(lambda: not gateway.pool._leaving)


async def test_a_file_that_cannot_be_read_changes_nothing(
    tokenizer, model, info, addresses, tmp_path, caplog
):
    path = tmp_path / "replicas"
    path.write_text(addresses[0])
    settings = settings_for(f"file:{path}", replica_refresh_s=0.01)
    async with (
        scripted(info, addresses[0]),
        in_process(settings, model, num_up=1) as (_, client),
    ):
        path.unlink()
        await wait_until(lambda: "cannot look up replicas" in caplog.text)
        check(await post(client), tokenizer)
        assert caplog.text.count("cannot look up replicas") == 1


async def test_a_replica_that_keeps_failing_is_left_out(tokenizer, model, info, addresses):
    settings = settings_for(*addresses, eject_after_failures=2, ejection_s=60, slow_start_s=0)
    async with (
        scripted(info, addresses[0]) as bad,
        scripted(info, addresses[1]),
        in_process(settings, model) as (gateway, client),
    ):
        bad.answer = failing(ErrorCode.UNAVAILABLE)
        for _ in range(10):
            check(await post(client, ["the cat"]), tokenizer, ["the cat"])
        assert len(bad.items) == 2
        assert gateway.pool.is_ejected(gateway.pool.replicas[0])
        assert "hotbed_ivy_replica_ejections_total 1.0" in (await client.get("/metrics")).text


async def test_a_slow_replica_is_hedged(tokenizer, model, info, addresses):
    async with (
        scripted(info, addresses[0]) as slow,
        scripted(info, addresses[1]),
        in_process(settings_for(*addresses, hedge=True, slow_start_s=0), model) as (_, client),
    ):
        # Just enough for a limit: with more, calls that a busy machine slows spend the budget.
        for _ in range(hedge._ENOUGH):
            check(await post(client, ["the cat"]), tokenizer, ["the cat"])

        async def never(item):
            await asyncio.Event().wait()

        slow.answer = never
        for _ in range(2):  # one of the two goes to the slow one first
            check(await post(client, ["the cat"]), tokenizer, ["the cat"])
        metrics = (await client.get("/metrics")).text
        assert "hotbed_ivy_chunk_hedges_total" in metrics
        assert "hotbed_ivy_chunk_hedges_total 0.0" not in metrics
