"""Replicas that fail, are full, differ, go and come back: every request gets one right answer."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from hotbed.core.errors import ErrorCode
from tests.ivy.asking import check, failing, never, post
from tests.ivy.harness import (
    in_process,
    rows_of,
    scripted,
    settings_for,
    unix_address,
    wait_until,
)


@pytest.mark.parametrize("code", [ErrorCode.UNAVAILABLE, ErrorCode.OVERLOADED])
async def test_a_chunk_that_one_replica_refuses_goes_to_the_other(
    tokenizer, model, info, addresses, code
):
    async with (
        scripted(info, addresses[0]) as bad,
        scripted(info, addresses[1]) as good,
        in_process(settings_for(*addresses), model) as (gateway, client),
    ):
        bad.answer = failing(code)
        for _ in range(4):
            check(await post(client), tokenizer)
        assert bad.items
        assert good.items
        assert all(gateway.pool._balance.outstanding(i) == 0 for i in range(2))


@pytest.mark.parametrize(
    ("code", "status"), [(ErrorCode.INTERNAL, 500), (ErrorCode.INVALID_INPUT, 400)]
)
async def test_what_would_fail_again_is_not_tried_again(model, info, addresses, code, status):
    async with (
        scripted(info, addresses[0]) as one,
        scripted(info, addresses[1]) as two,
        in_process(settings_for(*addresses), model) as (_, client),
    ):
        one.answer = two.answer = failing(code)
        answer = await post(client, "the cat")
        assert answer.status_code == status
        assert len(one.items) + len(two.items) == 1


async def test_when_all_are_full_it_is_429_with_a_time_to_come_back(model, info, addresses):
    # Case 131.
    async with (
        scripted(info, addresses[0]) as one,
        scripted(info, addresses[1]) as two,
        in_process(settings_for(*addresses), model) as (_, client),
    ):
        one.answer = two.answer = failing(ErrorCode.OVERLOADED, retry_after_s=2.3)
        answer = await post(client, "the cat")
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "3"
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert (len(one.items), len(two.items)) == (1, 1)


async def test_a_replica_that_dies_with_work_loses_none(tokenizer, model, info, addresses):
    async with (
        scripted(info, addresses[0]) as dying,
        scripted(info, addresses[1]) as other,
        in_process(settings_for(*addresses), model) as (gateway, client),
    ):
        dying.answer = never
        asking = asyncio.ensure_future(post(client))
        await dying.wait_for_items(1)
        await dying.kill()
        check(await asking, tokenizer)
        assert other.items
        assert gateway.pool.num_up == 1
        ready = await client.get("/ready")
        assert ready.status_code == 503
        assert [r["state"] for r in ready.json()["replicas"]] == ["down", "up"]


async def test_a_request_waits_for_the_only_replica_to_come_back(tokenizer, model, info, addresses):
    async with (
        scripted(info, addresses[0]) as tulip,
        in_process(settings_for(addresses[0]), model) as (gateway, client),
    ):
        tulip.answer = never
        asking = asyncio.ensure_future(post(client))
        await tulip.wait_for_items(1)
        await tulip.kill()
        await wait_until(lambda: gateway.pool.num_up == 0)
        tulip.answer = tulip.rows
        await tulip.start(addresses[0])
        check(await asking, tokenizer)


async def test_without_any_replica_it_is_503_in_bounded_time_and_heals(
    tokenizer, model, info, addresses
):
    settings = settings_for(addresses[0], unavailable_wait_s=0.05)
    async with in_process(settings, model, num_up=0) as (gateway, client):
        for path in ("/health", "/v1/models"):
            assert (await client.get(path)).status_code == 200
        assert (await client.get("/ready")).status_code == 503
        answer = await post(client)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["code"] == "unavailable"
        async with scripted(info, addresses[0]):
            await wait_until(lambda: gateway.pool.num_up == 1)
            check(await post(client), tokenizer)
            assert (await client.get("/ready")).status_code == 200


async def test_a_request_that_kills_replicas_is_given_up_before_all_are_down(
    model, info, addresses, tmp_path
):
    addresses = (*addresses, unix_address(tmp_path, "c"))
    async with contextlib.AsyncExitStack() as stack:
        tulips = [await stack.enter_async_context(scripted(info, a)) for a in addresses]
        _, client = await stack.enter_async_context(
            in_process(settings_for(*addresses, max_attempts=2), model)
        )
        for tulip in tulips:
            tulip.answer = failing(ErrorCode.UNAVAILABLE)
        answer = await post(client, "the cat")
        assert answer.status_code == 503
        assert sum(len(tulip.items) for tulip in tulips) == 2


async def test_min_ready_replicas(model, info, addresses):
    async with scripted(info, addresses[0]):
        for least, status in ((1, 200), (None, 503)):
            settings = settings_for(*addresses, min_ready_replicas=least)
            async with in_process(settings, model, num_up=1) as (_, client):
                assert (await client.get("/ready")).status_code == status


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fingerprint": "other"}, "fingerprint"),
        ({"dimensions": 16}, "dimensions"),
        ({"normalize": False}, "normalize"),
        ({"vocab_size": 7}, "vocab_size"),
        ({"max_tokens": 128}, "max_tokens"),
        ({"name": "org/other"}, "org/other"),
        ({"task": "score"}, "task"),
    ],
)
async def test_a_replica_that_differs_is_never_used_and_ready_says_why(
    tokenizer, model, info, addresses, changes, reason
):
    settings = settings_for(*addresses)
    async with (
        scripted(info, addresses[0]),
        in_process(settings, model, num_up=1) as (gateway, client),
        scripted(replace(info, **changes), addresses[1]) as other,
    ):
        await wait_until(lambda: gateway.pool.replicas[1].state == "refused")
        for _ in range(4):
            check(await post(client), tokenizer)
        assert not other.items
        ready = await client.get("/ready")
        assert ready.status_code == 503
        replica = ready.json()["replicas"][1]
        assert replica["state"] == "refused"
        assert reason in replica["reason"]


async def test_a_model_known_by_a_path_is_the_same_model(model, info, addresses):
    async with (
        scripted(replace(info, name="/models/Tiny/"), addresses[0]),
        in_process(settings_for(addresses[0]), model) as (_, client),
    ):
        assert (await post(client, "the cat")).status_code == 200


async def test_a_new_model_takes_over_once_the_old_one_is_gone(model, info, addresses):
    new = replace(info, fingerprint="new", dimensions=16)
    settings = settings_for(*addresses)
    async with (
        scripted(info, addresses[0]) as old,
        in_process(settings, model, num_up=1) as (gateway, client),
        scripted(new, addresses[1]),
    ):
        await wait_until(lambda: gateway.pool.replicas[1].state == "refused")
        before = await post(client, "the cat")
        await old.kill()
        await wait_until(lambda: gateway.pool.replicas[1].state == "up")
        after = await post(client, "the cat")
        assert after.status_code == 200
        assert rows_of(after.json()).shape == (1, 16)
        assert before.headers["x-hotbed-fingerprint"] != after.headers["x-hotbed-fingerprint"]
