"""The gateway's own bound on tokens that wait: refused before they travel, never for ever."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.ivy.pending import PendingTokens
from tests.ivy.asking import never, post
from tests.ivy.harness import in_process, scripted, settings_for


def test_tokens_are_given_back_however_it_ends():
    pending = PendingTokens(10)
    with contextlib.suppress(KeyError), pending.hold(7):
        assert pending.held == 7
        raise KeyError
    assert pending.held == 0
    with pending.hold(7), pytest.raises(HotbedError) as caught, pending.hold(4):
        pass
    assert caught.value.code is ErrorCode.OVERLOADED
    assert caught.value.retry_after_s
    for number in ("7", "4", "10"):
        assert number in caught.value.message
    assert pending.held == 0


def test_the_limit_itself_fits_and_a_lone_request_always():
    pending = PendingTokens(10)
    with pending.hold(6), pending.hold(4):
        assert pending.held == 10
    with pending.hold(1000):
        assert pending.held == 1000


async def test_past_the_limit_429_before_anything_travels(tokenizer, model, info, addresses):
    texts = ["the cat"] * 8  # 4 tokens each
    async with (
        scripted(info, addresses[0]) as tulip,
        in_process(settings_for(addresses[0], max_pending_tokens=40), model) as (gateway, client),
    ):
        tulip.answer = never
        asking = asyncio.ensure_future(post(client, texts))
        await tulip.wait_for_items(1)
        assert gateway.pool.pending.held == 32
        num_items = len(tulip.items)
        answer = await post(client, texts)
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert "32" in answer.json()["error"]["message"]
        assert len(tulip.items) == num_items
        # What fits is still taken: the door is for tokens, not for requests.
        small = asyncio.ensure_future(post(client, "the cat"))
        await tulip.wait_for_items(num_items + 1)
        metrics = (await client.get("/metrics")).text
        assert 'hotbed_ivy_pending_tokens{model="org/tiny"} 36.0' in metrics
        for task in (asking, small):
            task.cancel()
        await asyncio.gather(asking, small, return_exceptions=True)
        tulip.answer = tulip.rows
        assert gateway.pool.pending.held == 0
        assert (await post(client, texts)).status_code == 200


async def test_a_request_for_every_type_does_not_fill_the_queue_itself(model, info, addresses):
    async with (
        scripted(info, addresses[0]),
        in_process(settings_for(addresses[0], max_pending_tokens=40), model) as (_, client),
    ):
        body = {"texts": ["the cat"] * 8, "embedding_types": ["float", "int8", "binary", "ubinary"]}
        assert (await client.post("/v2/embed", json=body)).status_code == 200


def test_the_last_eighth_of_the_tokens_is_for_who_holds_few() -> None:
    pending = PendingTokens(800)
    with pending.hold(650, b"flood"), contextlib.ExitStack() as others:
        with pytest.raises(HotbedError), pending.hold(60, b"flood"):
            pass
        others.enter_context(pending.hold(60, b"other"))
        with pytest.raises(HotbedError), pending.hold(60, b"other"):
            pass  # above the limit less its eighth, and it holds some of that eighth
        others.enter_context(pending.hold(40, b"other"))
    assert pending.held == 0
