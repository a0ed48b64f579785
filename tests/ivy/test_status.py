"""What replicas say of themselves reaches /status, and asking them holds nobody up."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from hotbed.ivy.fresh import Fresh
from hotbed.ivy.status import ReplicaLoad, StatusAnswer
from hotbed.tulip.testing import FakeEngine
from tests.ivy.asking import post
from tests.ivy.harness import in_process, info_for, real_tulip, settings_for, unix_address


async def loads(client) -> list[ReplicaLoad | None]:
    answer = msgspec.json.decode((await client.get("/status")).content, type=StatusAnswer)
    return [replica.load for model in answer.models for replica in model.replicas]


async def test_steps_and_their_sizes_come_from_the_replica(
    tokenizer, model, addresses, monkeypatch
):
    monkeypatch.setattr("hotbed.ivy.status._STATS_AGE_S", 0.0)
    engine = FakeEngine(info_for(tokenizer))
    async with (
        real_tulip(engine, addresses[0]),
        in_process(settings_for(addresses[0]), model) as (_, client),
    ):
        (before,) = await loads(client)
        assert before is not None
        await post(client, ["the cat", "a fast dog", "the house"])
        (after,) = await loads(client)
        assert after is not None
        sizes = list(engine.steps)[before.steps :]
        assert after.steps - before.steps == len(sizes) > 0
        assert after.step_sequences - before.step_sequences == sum(s for s, _ in sizes) == 3
        assert after.step_tokens - before.step_tokens == sum(t for _, t in sizes)
        assert after.step_seconds > before.step_seconds
        assert after.seen_at_s >= before.seen_at_s
        assert (after.waiting_tokens, after.open_items, after.failed_steps) == (0, 0, 0)
        assert after.engine == engine.counters()


async def test_what_waits_in_a_replica_is_seen_while_it_waits(
    tokenizer, model, addresses, monkeypatch
):
    monkeypatch.setattr("hotbed.ivy.status._STATS_AGE_S", 0.0)
    engine = FakeEngine(info_for(tokenizer))
    async with (
        real_tulip(engine, addresses[0]),
        in_process(settings_for(addresses[0]), model) as (_, client),
    ):
        begun = len(engine.steps)
        engine.hold()
        first = asyncio.ensure_future(post(client, "the cat"))
        await asyncio.to_thread(engine.wait_begun, begun + 1)
        second = asyncio.ensure_future(post(client, "the fast dog"))
        while True:
            (load,) = await loads(client)
            assert load is not None
            if load.open_items == 2:
                break
        assert load.waiting_tokens == 5
        engine.release()
        assert (await first).status_code == (await second).status_code == 200


async def test_a_replica_that_is_down_has_no_load(tokenizer, model, addresses, tmp_path):
    absent = unix_address(tmp_path, "absent")
    async with (
        real_tulip(FakeEngine(info_for(tokenizer)), addresses[0]),
        in_process(settings_for(addresses[0], absent), model, num_up=1) as (_, client),
    ):
        there, none = await loads(client)
        assert there is not None
        assert none is None


async def test_however_many_look_it_is_made_once():
    made, go_on = [], asyncio.Event()

    async def make() -> int:
        made.append(len(made))
        await go_on.wait()
        return made[-1]

    fresh = Fresh(make, max_age_s=3600)
    asking = [asyncio.ensure_future(fresh.get()) for _ in range(3)]
    await asyncio.sleep(0)
    asking.pop().cancel()  # who leaves takes nobody along
    await asyncio.sleep(0)
    go_on.set()
    assert await asyncio.gather(*asking) == [0, 0]
    assert await fresh.get() == 0
    assert made == [0]


async def test_a_failure_is_not_kept():
    async def make() -> int:
        raise KeyError

    fresh = Fresh(make, max_age_s=0.0)
    for _ in range(2):
        with pytest.raises(KeyError):
            await fresh.get()
