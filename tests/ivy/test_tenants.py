"""Symptoms guarded: one customer's flood shuts the others of the same gateway out; a key or a
customer's name that reaches a replica."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from hotbed.ivy.caller import Tenants
from hotbed.tulip.testing import FakeEngine
from hotbed.wire.limits import MAX_TENANT_BYTES
from tests.ivy.asking import check, never, post
from tests.ivy.harness import (
    LIMITS,
    in_process,
    real_tulip,
    scripted,
    settings_for,
    wait_until,
)
from tests.ivy.test_access import key_file


def test_a_tenant_is_a_short_hash_of_the_header_or_else_of_the_key() -> None:
    tenants = Tenants("X-Tenant", by_key=True)
    by_key = tenants.of({b"authorization": b"Bearer one"})
    assert by_key == tenants.of({b"x-api-key": b"one"})
    assert by_key not in (b"", tenants.of({b"x-api-key": b"two"}))
    named = tenants.of({b"x-tenant": b"acme", b"x-api-key": b"one"})
    assert named not in (b"", by_key)
    assert named == tenants.of({b"x-tenant": b"acme"})
    assert b"acme" not in named
    assert len(named) <= MAX_TENANT_BYTES


def test_nobody_in_particular_without_header_and_keys() -> None:
    headers = {b"authorization": b"Bearer anything", b"x-tenant": b"acme"}
    assert Tenants(None, by_key=False).of(headers) == b""
    assert Tenants("x-tenant", by_key=False).of({b"authorization": b"Bearer x"}) == b""


async def test_the_tenant_travels_with_every_chunk(tokenizer, model, info, addresses, tmp_path):
    settings = settings_for(addresses[0], api_keys_file=key_file(tmp_path, "one", "two"))
    async with (
        scripted(info, addresses[0]) as tulip,
        in_process(settings, model) as (_, client),
    ):
        many = ["the cat"] * 40  # three chunks
        check(await post(client, many, {"x-api-key": "one"}), tokenizer, many)
        check(await post(client, headers={"x-api-key": "two"}), tokenizer)
    first, *_, last = tulip.items
    assert {item.tenant for item in tulip.items[:3]} == {first.tenant}
    assert b"" not in (first.tenant, last.tenant)
    assert first.tenant != last.tenant


async def test_without_tenants_nothing_travels(tokenizer, model, info, addresses):
    async with (
        scripted(info, addresses[0]) as tulip,
        in_process(settings_for(addresses[0]), model) as (_, client),
    ):
        check(await post(client, headers={"x-api-key": "one"}), tokenizer)
    assert tulip.items[0].tenant == b""


@pytest.mark.parametrize("full", ["gateway", "replica"])
async def test_who_asks_little_is_let_in_beside_a_flood(tokenizer, model, info, addresses, full):
    limits = replace(LIMITS, max_stream_items=16 if full == "replica" else 1000)
    settings = settings_for(
        addresses[0], tenant_header="x-tenant",
        max_requests_in_flight=16 if full == "gateway" else 1000,
    )  # fmt: skip
    async with (
        scripted(info, addresses[0], limits) as tulip,
        in_process(settings, model) as (_, client),
    ):
        tulip.answer = never
        flood = [
            asyncio.ensure_future(post(client, "the cat", {"x-tenant": "flood"})) for _ in range(40)
        ]
        # Of each it is known then what became of it: the replica has it, or it was refused.
        await tulip.wait_for_items(14)
        await wait_until(lambda: sum(task.done() for task in flood) == 40 - 14)
        refused = [task for task in flood if task.done()]
        waiting = [task for task in flood if not task.done()]
        assert len(tulip.items) == len(waiting) == 14
        assert {task.result().status_code for task in refused} == {429}
        tulip.answer = tulip.rows
        check(await post(client, headers={"x-tenant": "other"}), tokenizer)
        page = (await client.get("/metrics")).text
        assert (
            f'hotbed_ivy_requests_total{{route="/v1/embeddings",status="429"}} {len(refused)}'
            in page
        )
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


async def test_a_tenants_request_does_not_wait_for_the_end_of_anothers_flood(
    tokenizer, model, info, addresses
):
    engine = FakeEngine(info)
    settings = settings_for(addresses[0], tenant_header="x-tenant")
    async with (
        real_tulip(engine, addresses[0], max_step_tokens=32, min_ahead_tokens=1),
        in_process(settings, model) as (_, client),
    ):
        engine.hold()
        order: list[str] = []

        async def ask(tenant: str) -> None:
            check(await post(client, headers={"x-tenant": tenant}), tokenizer)
            order.append(tenant)

        flood = [asyncio.ensure_future(ask("flood")) for _ in range(60)]
        await asyncio.to_thread(engine.wait_begun, 2)
        other = asyncio.ensure_future(ask("other"))
        await asyncio.sleep(0.2)  # until it waits with the others; too short: the test still holds
        engine.release()
        await asyncio.gather(other, *flood)
        assert order.index("other") < 30
