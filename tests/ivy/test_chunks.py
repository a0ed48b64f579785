"""The chunks of one request: their bounds, their answers' shapes, their places."""

from __future__ import annotations

import asyncio

import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.wire import tulip_pb2 as pb
from tests.ivy.asking import TEXTS, check, post
from tests.ivy.harness import (
    in_process,
    scripted,
    settings_for,
)


async def test_a_request_larger_than_the_queue_is_not_429_for_ever(
    tokenizer, model, info, addresses
):
    # Case 92. The replica takes two chunks at a time; the request has many more.
    async with (
        scripted(info, addresses[0]) as tulip,
        in_process(settings_for(addresses[0]), model) as (_, client),
    ):
        waiting = 0

        async def answer(item: pb.Item) -> pb.Rows:
            nonlocal waiting
            if waiting == 2:
                raise HotbedError(ErrorCode.OVERLOADED, "full", retry_after_s=30)
            waiting += 1
            await asyncio.sleep(0)
            waiting -= 1
            return await tulip.rows(item)

        tulip.answer = answer
        check(await post(client, TEXTS * 4), tokenizer, TEXTS * 4)


async def test_rows_of_two_models_are_never_mixed_in_one_answer(model, info, addresses):
    async with (
        scripted(info, addresses[0]) as tulip,
        in_process(settings_for(addresses[0]), model) as (_, client),
    ):

        async def answer(item: pb.Item) -> pb.Rows:
            rows = await tulip.rows(item)
            rows.fingerprint = f"model {item.id % 2}"
            return rows

        tulip.answer = answer
        answer = await post(client)
        assert len(tulip.items) > 1
        assert answer.status_code == 503
        assert "two models" in answer.json()["error"]["message"]


async def test_the_sequence_that_failed_is_named_by_its_place_in_the_request(
    model, info, addresses
):
    async with (
        scripted(info, addresses[0]) as tulip,
        in_process(settings_for(addresses[0], max_chunks_per_replica=1), model) as (_, client),
    ):

        async def answer(item: pb.Item) -> pb.Rows:
            if item.id == 2:
                raise HotbedError(ErrorCode.INTERNAL, "not finite for sequence 1", param="input[1]")
            return await tulip.rows(item)

        tulip.answer = answer
        answer = await post(client, ["the cat"] * 40)
        assert answer.status_code == 500
        assert answer.json()["error"]["param"] == "input[33]"
        assert "input[33]" in answer.json()["error"]["message"]


@pytest.mark.parametrize("damage", ["count", "width", "bytes", "dtype"])
async def test_an_answer_of_the_wrong_shape_is_500_never_sent(model, info, addresses, damage):
    # Case 16: three inputs, two results.
    async with (
        scripted(info, addresses[0]) as tulip,
        in_process(settings_for(addresses[0]), model) as (_, client),
    ):

        async def answer(item: pb.Item) -> pb.Rows:
            rows = await tulip.rows(item)
            if damage == "count":
                rows.count -= 1
                rows.data = rows.data[: rows.count * rows.width * 4]
            elif damage == "width":
                rows.width //= 2
                rows.data = rows.data[: rows.count * rows.width * 4]
            elif damage == "dtype":
                rows.dtype = pb.FLOAT16
                rows.data = rows.data[::2]
            else:
                rows.data = rows.data[:-1]
            return rows

        tulip.answer = answer
        answer = await post(client, ["a", "b", "c"])
        assert answer.status_code == 500
        assert answer.json()["error"]["type"] == "server_error"


async def test_more_chunks_than_allowed_are_never_in_flight(tokenizer, model, info, addresses):
    async with (
        scripted(info, addresses[0]) as tulip,
        in_process(settings_for(addresses[0], max_chunks_per_replica=2), model) as (_, client),
    ):
        running = most = 0

        async def answer(item: pb.Item) -> pb.Rows:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1
            return await tulip.rows(item)

        tulip.answer = answer
        check(await post(client, TEXTS * 3), tokenizer, TEXTS * 3)
        assert most == 2


async def test_more_replicas_may_work_on_more_chunks(tokenizer, model, info, addresses):
    settings = settings_for(*addresses, max_chunks_per_replica=1)
    async with (
        scripted(info, addresses[0]) as one,
        scripted(info, addresses[1]) as two,
        in_process(settings, model) as (_, client),
    ):
        both = asyncio.Barrier(2)

        async def answer(item: pb.Item) -> pb.Rows:
            await both.wait()  # hangs unless two are in flight at a time
            return await one.rows(item)

        one.answer = two.answer = answer
        check(await post(client, ["the cat"] * 64), tokenizer, ["the cat"] * 64)


async def test_chunks_of_one_request_are_spread_over_the_replicas(
    tokenizer, model, info, addresses
):
    async with (
        scripted(info, addresses[0]) as one,
        scripted(info, addresses[1]) as two,
        in_process(settings_for(*addresses), model) as (_, client),
    ):
        check(await post(client, TEXTS * 3), tokenizer, TEXTS * 3)
        counts = len(one.items), len(two.items)
        assert min(counts) >= 0.3 * max(counts)
