"""Real replica processes, killed while the gateway is under load."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from hotbed.checkpoint.records import Prompts
from hotbed.ivy.expected import ExpectedModel
from hotbed.ivy.served_model import ServedModel
from hotbed.tulip.testing import FAKE_INFO, expected_rows
from tests.ivy import processes
from tests.ivy.harness import in_process, rows_of, settings_for, unix_address, wait_until

NUM_CLIENTS = 12


@pytest.fixture
def model(tokenizer):
    expected = ExpectedModel(FAKE_INFO.name, tokenizer.vocab_size, tokenizer.max_tokens)
    return ServedModel(names=("fake",), tokenizer=tokenizer, prompts=Prompts(), expected=expected)


@pytest.fixture(params=["grpc", "local"])
def command(tokenizer, request):
    local = ("--local-stream",) if request.param == "local" else ()
    return (
        "-m", "hotbed.tulip.testing", "--step-ms", "2", f"--vocab-size={tokenizer.vocab_size}",
        f"--max-tokens={tokenizer.max_tokens}", *local,
        "--listen",
    )  # fmt: skip


class Load:
    """Clients that ask without pause and check each answer."""

    def __init__(self, client, tokenizer) -> None:
        self.statuses: list[int] = []
        self.wrong = 0
        self._client = client
        self._vocab_size = tokenizer.vocab_size
        self._stopping = False
        self._tasks = [asyncio.ensure_future(self._ask(seed)) for seed in range(NUM_CLIENTS)]

    async def _ask(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        while not self._stopping:
            count = int(rng.integers(1, 40))
            ids = [rng.integers(5, self._vocab_size, rng.integers(1, 40)).tolist()
                   for _ in range(count)]  # fmt: skip
            answer = await self._client.post("/v1/embeddings", json={"input": ids})
            self.statuses.append(answer.status_code)
            if answer.status_code == 200:
                self.wrong += not np.array_equal(rows_of(answer.json()), expected_rows(ids))
            else:
                assert "retry-after" in answer.headers

    async def more(self, num_answers: int) -> None:
        """Until so many more answers have come."""
        goal = len(self.statuses) + num_answers
        await wait_until(lambda: len(self.statuses) >= goal, 30)

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)


async def up(client, addresses) -> list[int]:
    """What the page says of each replica."""
    page = (await client.get("/metrics")).text
    lines = [line for line in page.splitlines() if line.startswith("hotbed_ivy_replica_up{")]
    return [int(float(line.split()[-1])) for a in addresses for line in lines if a in line]


async def test_with_two_replicas_no_request_is_lost_when_one_is_killed(
    tokenizer, model, command, tmp_path
):
    addresses = unix_address(tmp_path, "a"), unix_address(tmp_path, "b")
    async with (
        processes.running(*command, addresses[0]) as victim,
        processes.running(*command, addresses[1]),
        in_process(settings_for(*addresses), model) as (gateway, client),
    ):
        load = Load(client, tokenizer)
        await load.more(40)
        victim.kill()
        await wait_until(lambda: gateway.pool.num_up == 1)
        assert await up(client, addresses) == [0, 1]
        await load.more(40)
        async with processes.running(*command, addresses[0]):
            await wait_until(lambda: gateway.pool.num_up == 2, 30)
            assert await up(client, addresses) == [1, 1]
            await load.more(40)
            await load.stop()
        page = (await client.get("/metrics")).text
        assert "hotbed_ivy_chunk_retries_total 0.0" not in page
        assert set(load.statuses) == {200}
        assert load.wrong == 0


async def test_with_one_replica_each_request_gets_an_answer_or_503_and_it_heals(
    tokenizer, model, command, tmp_path
):
    address = unix_address(tmp_path, "a")
    settings = settings_for(address, unavailable_wait_s=0.02)
    async with (
        processes.running(*command, address) as victim,
        in_process(settings, model) as (gateway, client),
    ):
        load = Load(client, tokenizer)
        await load.more(40)
        victim.kill()
        await wait_until(lambda: gateway.pool.num_up == 0)
        await load.more(NUM_CLIENTS + 1)
        async with processes.running(*command, address):
            await wait_until(lambda: gateway.pool.num_up == 1, 30)
            before = len(load.statuses)
            await load.more(40)
            await load.stop()
        assert set(load.statuses) == {200, 503}
        assert set(load.statuses[before + NUM_CLIENTS :]) == {200}
        assert load.wrong == 0


async def test_a_replica_stopped_in_order_loses_nothing_of_a_single_one(
    tokenizer, model, command, tmp_path
):
    # SIGTERM: it drains, the gateway waits for its successor.
    address = unix_address(tmp_path, "a")
    async with (
        processes.running(*command, address) as old,
        in_process(settings_for(address, unavailable_wait_s=15), model) as (_, client),
    ):
        load = Load(client, tokenizer)
        await load.more(40)
        old.terminate()
        assert await old.wait() == 0
        async with processes.running(*command, address):
            await load.more(40)
            await load.stop()
        assert set(load.statuses) == {200}
        assert load.wrong == 0
