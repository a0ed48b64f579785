"""Replicas on hosts of their own behind a DNS name, as in a cluster: they come, go and vanish.

Hosts are network namespaces; the cable of one can be pulled, so that packets vanish and no
connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from hotbed.checkpoint.load import load_checkpoint
from hotbed.tulip.testing import expected_rows
from tests.ivy.harness import rows_of
from tests.support.checkpoints import make_bert
from tests.support.dns_zone import NAME
from tests.support.hosts import Network, network

pytestmark = pytest.mark.slow

PORT, HTTP_PORT = 50051, 8000
KEEPALIVE_S = 1.0
NUM_CLIENTS = 6
WAIT_S = 30.0


@pytest.fixture
def hosts() -> Iterator[Network]:
    with network() as made:
        yield made


class Cluster:
    """A gateway, a name server and replicas, each on its host, under load."""

    def __init__(self, hosts: Network, folder: Path, stack: contextlib.AsyncExitStack) -> None:
        self._hosts, self._folder, self._stack = hosts, folder, stack
        self._zone = folder / "zone"
        self._checkpoint = make_bert(folder / "fake")
        loaded = load_checkpoint(str(self._checkpoint))
        self._vocab_size, self._max_tokens = loaded.config.vocab_size, loaded.max_tokens
        self.addresses: dict[str, str] = {}
        self.replicas: dict[str, asyncio.subprocess.Process] = {}
        self.statuses: list[int] = []
        self.log = folder / "ivy.log"
        self._stopping = False
        self._clients: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Gateway and name server, which knows no address yet, and a client on the gateway."""
        self._hosts.add("ivy")
        dns = self._hosts.add("dns")
        self._hosts.ask_dns_at("ivy", dns)
        self.name()
        self._stack.enter_context(self._hosts.on("ivy"))
        server = await self._stack.enter_async_context(
            self._hosts.python("dns", "-m", "tests.support.dns_zone", str(self._zone))
        )
        await _first_line(server)
        await self._stack.enter_async_context(
            self._hosts.python(
                "ivy", "-m", "hotbed.ivy", f"--model={self._checkpoint}", "--offline",
                f"--replicas=dns:{NAME}:{PORT}", f"--port={HTTP_PORT}", "--replica-refresh-s=0.2",
                "--max-backoff-s=0.2", f"--replica-keepalive-time-s={KEEPALIVE_S}",
                f"--replica-keepalive-timeout-s={KEEPALIVE_S}", "--min-ready-replicas=1",
                log=self.log,
            )
        )  # fmt: skip
        self.client = await self._stack.enter_async_context(
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{HTTP_PORT}", trust_env=False, timeout=WAIT_S
            )
        )
        async with asyncio.timeout(WAIT_S):
            while True:
                with contextlib.suppress(httpx.ConnectError):
                    if (await self.client.get("/health")).status_code == 200:
                        return
                await asyncio.sleep(0.05)

    async def add(self, host: str) -> None:
        """A replica on a new host; no name has its address yet."""
        address = self.addresses[host] = self._hosts.add(host)
        self.replicas[host] = await self._stack.enter_async_context(
            self._hosts.python(
                host, "-m", "hotbed.tulip.testing", f"--listen={address}:{PORT}", "--step-ms=2",
                f"--vocab-size={self._vocab_size}", f"--max-tokens={self._max_tokens}",
                f"--keepalive-time-s={KEEPALIVE_S}", log=self._folder / f"{host}.log",
            )
        )  # fmt: skip

    def name(self, *hosts: str) -> None:
        """From now on the name has these hosts' addresses."""
        new = self._zone.with_suffix(".new")
        new.write_text("\n".join(self.addresses[host] for host in hosts))
        new.replace(self._zone)

    def lose_zone(self) -> None:
        """The name server has nothing to say."""
        self._zone.unlink()

    async def until_up(self, *hosts: str) -> None:
        """The gateway uses exactly these replicas."""
        wanted = {f"{self.addresses[host]}:{PORT}" for host in hosts}
        async with asyncio.timeout(WAIT_S):
            while await self._up() != wanted:
                await asyncio.sleep(0.05)

    async def _up(self) -> set[str]:
        replicas = (await self.client.get("/status")).json()["models"][0]["replicas"]
        return {replica["address"] for replica in replicas if replica["state"] == "up"}

    def load(self) -> None:
        """Clients begin to ask without pause; each answer is checked."""
        self._clients = [asyncio.ensure_future(self._ask(seed)) for seed in range(NUM_CLIENTS)]

    async def _ask(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        while not self._stopping:
            ids = [
                rng.integers(5, self._vocab_size, rng.integers(1, 40)).tolist()
                for _ in range(int(rng.integers(1, 20)))
            ]
            answer = await self.client.post("/v1/embeddings", json={"input": ids})
            self.statuses.append(answer.status_code)
            if answer.status_code == 200:
                np.testing.assert_array_equal(rows_of(answer.json()), expected_rows(ids))

    async def more(self, num_answers: int) -> None:
        goal = len(self.statuses) + num_answers
        async with asyncio.timeout(WAIT_S):
            while len(self.statuses) < goal:
                for client in self._clients:
                    if client.done():
                        client.result()
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """Every request was answered 200, with the right rows."""
        self._stopping = True
        await asyncio.gather(*self._clients)
        assert set(self.statuses) == {200}

    async def metric(self, name: str) -> float:
        page = (await self.client.get("/metrics")).text
        return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name))


async def _first_line(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), WAIT_S)


@pytest.fixture
async def cluster(
    hosts: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Cluster]:
    # The name server is a module of the tests.
    path = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
    async with contextlib.AsyncExitStack() as stack:
        made = Cluster(hosts, tmp_path, stack)
        await made.start()
        yield made


async def test_replicas_come_and_go_with_the_name_and_no_request_is_lost(hosts, cluster) -> None:
    assert (await cluster.client.get("/ready")).status_code == 503
    await cluster.add("a")
    cluster.name("a")
    await cluster.until_up("a")
    cluster.load()
    await cluster.more(20)
    await cluster.add("b")
    await cluster.add("c")
    cluster.name("a", "b", "c")
    await cluster.until_up("a", "b", "c")
    await cluster.more(20)
    cluster.name("b", "c")
    await cluster.until_up("b", "c")
    cluster.replicas["a"].kill()  # nothing of it is in use any more
    await cluster.more(20)
    await cluster.stop()


async def test_a_host_that_vanishes_costs_no_request_and_comes_back(hosts, cluster) -> None:
    for host in ("a", "b"):
        await cluster.add(host)
    cluster.name("a", "b")
    await cluster.until_up("a", "b")
    cluster.load()
    await cluster.more(20)
    hosts.plug("a", is_in=False)
    # Nothing tells the gateway but the ping that stays without an answer.
    await cluster.until_up("b")
    await cluster.more(20)
    assert await cluster.metric("hotbed_ivy_chunk_retries_total") > 0
    assert await cluster.metric("hotbed_ivy_replica_up") == 1
    hosts.plug("a", is_in=True)
    await cluster.until_up("a", "b")
    await cluster.more(20)
    await cluster.stop()


async def test_a_host_that_comes_back_under_another_address_is_followed(hosts, cluster) -> None:
    for host in ("a", "b"):
        await cluster.add(host)
    cluster.name("a", "b")
    await cluster.until_up("a", "b")
    cluster.load()
    await cluster.more(20)
    hosts.plug("a", is_in=False)
    await cluster.add("c")
    cluster.name("b", "c")  # before the gateway knows that a is gone
    await cluster.until_up("b", "c")
    await cluster.more(20)
    await cluster.stop()


@pytest.mark.parametrize("silent", [True, False], ids=["cable", "servfail"])
async def test_a_name_server_that_fails_changes_nothing(hosts, cluster, silent: bool) -> None:
    await cluster.add("a")
    cluster.name("a")
    await cluster.until_up("a")
    cluster.load()
    if silent:
        hosts.plug("dns", is_in=False)
    else:
        cluster.lose_zone()
    async with asyncio.timeout(WAIT_S):
        while "cannot look up replicas" not in cluster.log.read_text():
            await asyncio.sleep(0.1)
    await cluster.more(20)
    await cluster.until_up("a")
    hosts.plug("dns", is_in=True)
    await cluster.add("b")
    cluster.name("a", "b")
    await cluster.until_up("a", "b")
    await cluster.more(20)
    await cluster.stop()
