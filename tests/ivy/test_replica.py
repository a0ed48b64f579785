"""One replica: what goes over its stream, and when."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hotbed.wire import tulip_pb2 as pb
from tests.ivy.asking import check, never, post
from tests.ivy.harness import (
    LIMITS,
    gateway_tasks,
    in_process,
    scripted,
    settings_for,
    wait_until,
)


async def test_a_replica_that_drains_gets_nothing_new_but_may_finish(
    tokenizer, model, info, addresses
):
    # Case 128.
    async with (
        scripted(info, addresses[0]) as tulip,
        in_process(settings_for(addresses[0], unavailable_wait_s=0.05), model) as (gateway, client),
    ):
        gate = asyncio.Event()

        async def answer(item: pb.Item) -> pb.Rows:
            await gate.wait()
            return await tulip.rows(item)

        tulip.answer = answer
        asking = asyncio.ensure_future(post(client, ["the cat"]))
        await tulip.wait_for_items(1)
        await tulip.set_serving(False)
        await wait_until(lambda: gateway.pool.num_up == 0)
        assert (await post(client, ["a dog"])).status_code == 503
        assert len(tulip.items) == 1
        gate.set()
        check(await asking, tokenizer, ["the cat"])
        await tulip.set_serving(True)
        await wait_until(lambda: gateway.pool.num_up == 1)
        check(await post(client, ["a dog"]), tokenizer, ["a dog"])


async def test_a_request_that_takes_too_long_is_504_and_its_work_is_taken_back(
    model, info, addresses
):
    async with (
        scripted(info, addresses[0]) as tulip,
        in_process(settings_for(addresses[0]), model) as (gateway, client),
    ):
        tulip.answer = never
        answer = await post(client, "the cat", headers={"X-Request-Timeout-Ms": "60"})
        assert answer.status_code == 504
        assert 1 <= tulip.items[0].timeout_ms <= 60
        await wait_until(lambda: tulip.cancelled == [tulip.items[0].id])
        assert gateway.pool._balance.outstanding(0) == 0


async def test_the_replica_learns_the_time_that_is_left(model, info, addresses):
    async with (
        scripted(info, addresses[0]) as tulip,
        in_process(
            settings_for(addresses[0], request_timeout_s=7, max_request_timeout_s=9), model
        ) as (_, client),
    ):
        for asked in (None, "5000", "3600000"):
            headers = {} if asked is None else {"X-Request-Timeout-Ms": asked}
            assert (await post(client, "a", headers=headers)).status_code == 200
        given = [item.timeout_ms for item in tulip.items]
        assert 6000 < given[0] <= 7000
        assert 4000 < given[1] <= 5000
        assert 8000 < given[2] <= 9000


async def test_items_in_flight_to_a_replica_are_bounded(model, info, addresses):
    limits = replace(LIMITS, max_stream_items=3)
    async with (
        scripted(info, addresses[0], limits) as tulip,
        in_process(settings_for(addresses[0]), model) as (_, client),
    ):
        tulip.answer = never
        asking = [asyncio.ensure_future(post(client, "a")) for _ in range(3)]
        await tulip.wait_for_items(3)
        answer = await post(client, "a")
        assert answer.status_code == 429
        assert "retry-after" in answer.headers
        await tulip.kill()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def test_requests_in_flight_in_the_gateway_are_bounded(model, info, addresses):
    async with (
        scripted(info, addresses[0]) as tulip,
        in_process(settings_for(addresses[0], max_requests_in_flight=2), model) as (_, client),
    ):
        gate = asyncio.Event()

        async def answer(item: pb.Item) -> pb.Rows:
            await gate.wait()
            return await tulip.rows(item)

        tulip.answer = answer
        asking = [asyncio.ensure_future(post(client, "a")) for _ in range(2)]
        await tulip.wait_for_items(2)
        assert (await post(client, "a")).status_code == 429
        gate.set()
        assert [(await task).status_code for task in asking] == [200, 200]
        assert (await post(client, "a")).status_code == 200


async def test_items_queued_together_share_a_message(model, info, addresses):
    async with (
        scripted(info, addresses[0]) as tulip,
        in_process(settings_for(addresses[0]), model) as (_, client),
    ):
        await asyncio.gather(*(post(client, f"the cat {i}") for i in range(40)))
        assert sum(tulip.messages) == 40
        assert len(tulip.messages) < 20


async def test_closing_leaves_no_task_and_answers_who_waits(model, info, addresses):
    async with scripted(info, addresses[0]) as tulip:
        async with in_process(settings_for(addresses[0], max_attempts=1), model) as (_, client):
            tulip.answer = never
            asking = asyncio.ensure_future(post(client, "a"))
            await tulip.wait_for_items(1)
            assert gateway_tasks()
        assert (await asking).status_code == 503
        assert not gateway_tasks()


async def test_closing_while_nothing_answers_takes_no_time(model, addresses):
    async with asyncio.timeout(2):
        async with in_process(
            settings_for("192.0.2.1:1", connect_timeout_s=60), model, num_up=0
        ) as (_, client):
            assert (await client.get("/health")).status_code == 200
