"""Everything goes wrong for a while: `python -m bench.chaos --seconds 600`. Exit code 1 if a
promise is broken.

Hotbed's supervisor and gateway run over fake replicas (`bench.chaos_service`) whose steps fail,
run out of memory, stall, hang and die at random, while replicas are killed and stopped, and clients
leave in the middle, at a steady load. Each answer is compared with what its own texts must give.
What is promised: every request is answered; a 200 holds the right rows; another status is one that
tells the client to come again (429, 503, 504, with Retry-After where there is one), and coming
again succeeds; the gateway's and the supervisor's memory stays flat; at the end all is idle.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from bench.chaos_service import DIMENSIONS
from hotbed.bench import rows
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.defaults import DEFAULT_MODEL
from hotbed.text.options import EncodeOptions
from hotbed.text.tokenizer import Tokenizer
from hotbed.tulip.fake_rows import FAKE_INFO, expected_rows

FAULTS = "error=0.02,oom=0.01,stall=0.005,hang=0.0005,death=0.0005"
GIVE_UP_S = 90.0
LONG_PAUSES = 0.05  # of all pauses; so long that the gateway gives the connection up
MAX_GROWTH = 1.10
MAX_GROWTH_BYTES = 24 << 20
WORDS = ("red", "green", "old", "young", "quick", "slow", "warm", "cold", "river", "stone", "house")
RETRIED = (429, 503, 504)


@dataclass
class Seen:
    """What the clients saw."""

    statuses: Counter[int] = field(default_factory=Counter)
    num_wrong: int = 0
    num_lost: int = 0
    num_stuck: int = 0
    num_left: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def problem(self, text: str) -> None:
        if len(self.problems) < 20:
            self.problems.append(text)


class Clients:
    """Clients that send one request after another, at most `rate` a second each."""

    def __init__(
        self, base_url: str, model: str, tokenizer: Tokenizer, seen: Seen, *, rate: float
    ) -> None:
        self._base_url, self._tokenizer, self._seen = base_url, tokenizer, seen
        self._model, self._rate = model, rate
        self._info = replace(FAKE_INFO, dimensions=DIMENSIONS)
        self.stopping = asyncio.Event()

    async def run(self, seed: int) -> None:
        draw = random.Random(seed)
        async with httpx.AsyncClient(base_url=self._base_url, timeout=GIVE_UP_S) as client:
            while not self.stopping.is_set():
                texts = [
                    " ".join(draw.choices(WORDS, k=int(np.exp(draw.uniform(0, 4.5)))))
                    for _ in range(int(np.exp(draw.uniform(0, 3.5))))
                ]
                if draw.random() < 0.03:
                    await self._leave(client, texts, after_s=draw.uniform(0, 0.05))
                else:
                    await self._ask(client, texts)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stopping.wait(), draw.expovariate(self._rate))

    async def _leave(self, client: httpx.AsyncClient, texts: list[str], *, after_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._post(client, texts), after_s)
        self._seen.num_left += 1

    async def _ask(self, client: httpx.AsyncClient, texts: list[str]) -> None:
        """Until the request succeeds, as a client would; a failure to do so is a problem."""
        start = time.monotonic()
        while time.monotonic() < start + GIVE_UP_S:
            try:
                answer = await self._post(client, texts)
            except httpx.HTTPError as error:
                self._seen.num_lost += 1
                self._seen.problem(f"no answer: {error!r}")
                return
            self._seen.statuses[answer.status_code] += 1
            if answer.status_code == 200:
                self._check(texts, answer.json())
                self._seen.seconds.append(time.monotonic() - start)
                return
            if answer.status_code not in RETRIED:
                self._seen.problem(f"status {answer.status_code}: {answer.text[:200]}")
                return
            await asyncio.sleep(float(answer.headers.get("retry-after", "0.1")))
        self._seen.num_lost += 1
        self._seen.problem(f"refused for {GIVE_UP_S} s")

    async def _post(self, client: httpx.AsyncClient, texts: list[str]) -> httpx.Response:
        body = {"model": self._model, "input": texts, "encoding_format": "base64"}
        return await client.post("/v1/embeddings", json=body)

    def _check(self, texts: list[str], answer: dict[str, Any]) -> None:
        batch = self._tokenizer.encode(texts, EncodeOptions(truncate=True)).batch
        expected = expected_rows(batch, info=self._info)
        got = [np.frombuffer(base64.b64decode(d["embedding"]), "<f4") for d in answer["data"]]
        if len(got) != len(expected) or not np.array_equal(np.stack(got), expected):
            self._seen.num_wrong += 1
            self._seen.problem(f"wrong rows for {len(texts)} texts")


async def torment(service: psutil.Process, seen: Seen, stop: asyncio.Event, seed: int) -> None:
    """Kill or stop a replica every second or two; some stay stopped for half a minute."""
    draw = random.Random(seed)
    stopped: dict[asyncio.Task[None], int] = {}
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), draw.uniform(0.5, 3))
        replicas = _running(service, "hotbed.tulip.testing")
        replicas = [replica for replica in replicas if replica.pid not in stopped.values()]
        if stop.is_set() or not replicas:
            continue
        victim = draw.choice(replicas)
        what = draw.choices(("kill", "terminate", "pause"), (3, 1, 3))[0]
        seen.actions[what] += 1
        with contextlib.suppress(psutil.NoSuchProcess):
            if what == "kill":
                victim.kill()
            elif what == "terminate":
                victim.send_signal(signal.SIGTERM)
            elif draw.random() < LONG_PAUSES and not stopped:
                seen.actions["long pause"] += 1
                pause = asyncio.ensure_future(_pause(victim, draw.uniform(20, 40)))
                stopped[pause] = victim.pid
                pause.add_done_callback(stopped.pop)
            else:
                await _pause(victim, draw.uniform(0.05, 1))
    await asyncio.gather(*stopped)


async def _pause(victim: psutil.Process, seconds: float) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        victim.suspend()
        await asyncio.sleep(seconds)
        victim.resume()


def _running(service: psutil.Process, module: str) -> list[psutil.Process]:
    found = []
    for child in service.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if module in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found


async def chaos(
    *,
    seconds: float,
    model: str,
    clients: int,
    rate: float,
    faults: str,
    seed: int,
    log: Path,
    local_stream: bool = False,
) -> tuple[Seen, list[int]]:
    """Run it; what the clients saw, and bytes of the lasting processes over time."""
    checkpoint = load_checkpoint(model, offline=True)
    tokenizer = Tokenizer.load(
        checkpoint.tokenizer, max_tokens=checkpoint.max_tokens,
        vocab_size=checkpoint.config.vocab_size, fast="off",
    )  # fmt: skip
    command = [sys.executable, "-m", "bench.chaos_service", f"--model={model}",
               f"--faults={faults}"]  # fmt: skip
    if local_stream:
        command.append("--local-stream")
    seen, memory = Seen(), []
    with _running_service(command, log, seen) as process:
        line = await asyncio.to_thread(process.stdout.readline) if process.stdout else ""
        if not line:
            raise RuntimeError(f"the service did not start: see {log}")
        host, port = line.split()
        service = psutil.Process(process.pid)
        base_url = f"http://{host}:{port}"
        load = Clients(base_url, model, tokenizer, seen, rate=rate)
        stop = asyncio.Event()
        tasks = [asyncio.ensure_future(load.run(seed * 1000 + i)) for i in range(clients)]
        tormenting = asyncio.ensure_future(torment(service, seen, stop, seed))
        lasting = [service, *_running(service, "hotbed.ivy")]
        for _ in range(20):
            await asyncio.sleep(seconds / 20)
            memory.append(sum(p.memory_info().rss for p in lasting))
        stop.set()
        await tormenting
        load.stopping.set()
        _, stuck = await asyncio.wait(tasks, timeout=2 * GIVE_UP_S)
        for task in stuck:
            seen.num_stuck += 1
            seen.problem("a client is stuck")
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=bool(stuck))
        await _settle(base_url, seen)
    return seen, memory


@contextlib.contextmanager
def _running_service(
    command: Sequence[str], log: Path, seen: Seen
) -> Iterator[subprocess.Popen[str]]:
    with (
        log.open("w", encoding="utf-8") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                seen.problem("the service did not stop")
                process.kill()


async def _settle(base_url: str, seen: Seen) -> None:
    """With nobody asking, no request may be left in flight."""
    give_up = time.monotonic() + 30
    async with httpx.AsyncClient(base_url=base_url) as client:
        while time.monotonic() < give_up:
            page = (await client.get("/metrics")).text
            if "hotbed_ivy_requests_in_flight 0.0" in page:
                return
            await asyncio.sleep(0.1)
    seen.num_stuck += 1
    seen.problem("requests are stuck in the gateway")


def verdict(seen: Seen, memory: Sequence[int]) -> list[str]:
    """What was promised and not kept."""
    problems = list(seen.problems)
    if not seen.statuses[200]:
        problems.append("nothing was answered")
    start, end = memory[len(memory) // 3], memory[-1]
    if end > max(start * MAX_GROWTH, start + MAX_GROWTH_BYTES):
        problems.append(f"memory grew from {start >> 20} to {end >> 20} MiB")
    return problems


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--model", default=DEFAULT_MODEL, help="whose tokenizer the gateway uses")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rate", type=float, default=10.0, help="requests a second of a client")
    parser.add_argument("--faults", default=FAULTS, help="rates of the replicas' own faults")
    parser.add_argument("--local-stream", action="store_true", help="streams without gRPC")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, default=Path("chaos.log"))
    parser.add_argument("--out", type=Path, help="results file to append to")
    options = parser.parse_args(argv)
    seen, memory = asyncio.run(
        chaos(
            seconds=options.seconds, model=options.model, clients=options.clients,
            rate=options.rate, faults=options.faults, seed=options.seed, log=options.log,
            local_stream=options.local_stream,
        )
    )  # fmt: skip
    problems = verdict(seen, memory)
    restarts = options.log.read_text(encoding="utf-8").count("starting again in")
    result = {
        "seconds": options.seconds, "n": seen.statuses[200], "lost": seen.num_lost,
        "wrong": seen.num_wrong, "stuck": seen.num_stuck, "left": seen.num_left,
        "restarts": restarts,
        "statuses": {str(k): v for k, v in sorted(seen.statuses.items())},
        "actions": dict(seen.actions), "rss_mib": [m >> 20 for m in memory],
        **(rows.percentiles(seen.seconds) if seen.seconds else {}),
    }  # fmt: skip
    print(json.dumps(result), *problems, "FAIL" if problems else "PASS", sep="\n", flush=True)
    if options.out and not problems:
        settings = options.faults + (", local stream" if options.local_stream else "")
        made = rows.row("chaos", "hotbed", "fake", **result, settings=settings)
        rows.append(options.out, [made])
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
