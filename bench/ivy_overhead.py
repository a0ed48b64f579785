"""What the gateway itself costs: `python -m bench.ivy_overhead [--out FILE]`.

One Ivy process with all-MiniLM-L6-v2's tokenizer in front of one Tulip process whose fake engine
answers rows of 1,024 dimensions after a fixed time a step; a keep-alive client in a third process.
Every text is new. CPU is user and system time of the whole Ivy process, all threads. On a machine
with few cores the three processes share them: read the CPU, not the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import itertools
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httptools
import numpy as np
import psutil
import uvloop

from hotbed.bench import rows
from hotbed.bench.service import any_ended, free_port, wait_until_ready
from hotbed.bench.texts import mixed_texts
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.defaults import DEFAULT_MODEL
from hotbed.text.tokenizer import Tokenizer
from hotbed.tulip.testing import FAKE_INFO, expected_rows

DIMENSIONS = 1024
# name: (texts a request, words a text, different requests)
LOADS = {"1x30 words": (1, 30, 4000), "32x100 words": (32, 100, 200)}
CONCURRENCIES = (1, 16, 64)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="results file to append to")
    parser.add_argument("--seconds", type=float, default=3.0, help="a measurement")
    parser.add_argument("--step-ms", type=float, nargs="*", default=[0.0, 2.0])
    parser.add_argument("--fast-tokenizers", choices=["auto", "off"], default="auto")
    arguments = parser.parse_args()
    measured = []
    spawn = multiprocessing.get_context("spawn")
    for step_ms in arguments.step_ms:
        with (
            started(step_ms, arguments.fast_tokenizers) as (port, ivy),
            ProcessPoolExecutor(1, mp_context=spawn) as client,
        ):
            check(port)
            for (load, shape), concurrency in itertools.product(LOADS.items(), CONCURRENCIES):
                client.submit(drive, port, shape, concurrency, arguments.seconds / 3).result()
                before = cpu_seconds(ivy)
                done = client.submit(drive, port, shape, concurrency, arguments.seconds)
                seconds, latencies = done.result()
                cpu_us = (cpu_seconds(ivy) - before) / len(latencies) * 1e6
                measured.append(
                    rows.row(
                        "ivy-overhead", "ivy", "fake", load=load, step_ms=step_ms,
                        concurrency=concurrency, n=len(latencies),
                        requests_per_s=round(len(latencies) / seconds, 1),
                        cpu_us_per_request=round(cpu_us, 1), **rows.percentiles(latencies),
                        settings={"fast_tokenizers": arguments.fast_tokenizers},
                    )
                )  # fmt: skip
    columns = ["step_ms", "load", "concurrency", "requests_per_s", "p50_ms", "p99_ms"]
    rows.show("One Ivy process", measured, [*columns, "cpu_us_per_request"])
    if arguments.out:
        rows.append(arguments.out, measured)
    return 0


@contextlib.contextmanager
def started(
    step_ms: float, fast_tokenizers: str, *, max_queue_tokens: int = 1 << 20
) -> Iterator[tuple[int, psutil.Process]]:
    """(port, Ivy's process) of a gateway that is ready."""
    checkpoint = load_checkpoint(DEFAULT_MODEL)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        # The gateway refuses a replica whose model has another name.
        (folder / "fake").symlink_to(checkpoint.folder)
        port = free_port()
        run = [sys.executable, "-m"]
        tulip = [
            *run, "hotbed.tulip.testing", f"--listen=unix:{folder}/t", f"--step-ms={step_ms}",
            f"--dimensions={DIMENSIONS}", f"--max-tokens={checkpoint.max_tokens}",
            f"--vocab-size={checkpoint.config.vocab_size}",
            f"--max-queue-tokens={max_queue_tokens}",
        ]  # fmt: skip
        ivy = [
            *run, "hotbed.ivy", f"--model={folder}/fake", f"--replicas=unix:{folder}/t",
            f"--port={port}", f"--fast-tokenizers={fast_tokenizers}", "--offline",
        ]  # fmt: skip
        processes = []
        for command in (tulip, ivy):
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            processes.append(process)
        wait_until_ready(f"http://127.0.0.1:{port}/ready", any_ended(processes))
        yield port, psutil.Process(processes[1].pid)


def check(port: int) -> None:
    """The rows that come back are those of the texts sent."""
    checkpoint = load_checkpoint(DEFAULT_MODEL)
    tokenizer = Tokenizer.load(
        checkpoint.tokenizer,
        max_tokens=checkpoint.max_tokens,
        vocab_size=checkpoint.config.vocab_size,
        fast="off",
    )
    texts = mixed_texts(50, min_words=1, max_words=100)
    expected = expected_rows(
        tokenizer.encode(texts).batch, info=replace(FAKE_INFO, dimensions=DIMENSIONS)
    )
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/embeddings",
        json.dumps({"input": texts, "encoding_format": "base64"}).encode(),
        {"Content-Type": "application/json"},
    )
    answer = json.load(urllib.request.urlopen(request))
    for row, right in zip(answer["data"], expected, strict=True):
        if not np.array_equal(np.frombuffer(base64.b64decode(row["embedding"]), "<f4"), right):
            raise RuntimeError(f"row {row['index']} is wrong")


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


# The client, in a process of its own.


def drive(
    port: int, shape: tuple[int, int, int], concurrency: int, seconds: float
) -> tuple[float, list[float]]:
    """(seconds taken, seconds of each request) of `concurrency` connections kept busy."""
    requests = itertools.cycle([encode(texts) for texts in texts_of(*shape)])
    return uvloop.run(_drive(port, requests, concurrency, seconds))


def texts_of(num_texts: int, num_words: int, num_requests: int) -> Iterator[list[str]]:
    seed = time.time_ns() % 2**32
    texts = mixed_texts(
        num_texts * num_requests, seed=seed, min_words=num_words, max_words=num_words
    )
    return (texts[i : i + num_texts] for i in range(0, len(texts), num_texts))


def encode(texts: list[str]) -> bytes:
    value = texts[0] if len(texts) == 1 else texts
    body = json.dumps({"input": value, "model": "fake", "encoding_format": "base64"}).encode()
    return (
        b"POST /v1/embeddings HTTP/1.1\r\nHost: ivy\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    ) + body


class Connection(asyncio.Protocol):
    """One request at a time on one connection."""

    def __init__(self) -> None:
        self._parser: Any = httptools.HttpResponseParser(self)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() != 200:
            self._done.set_exception(RuntimeError(f"status {self._parser.get_status_code()}"))
        else:
            self._done.set_result(None)

    async def ask(self, request: bytes) -> None:
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._done

    def close(self) -> None:
        self._transport.close()


async def _drive(
    port: int, requests: Iterator[bytes], concurrency: int, seconds: float
) -> tuple[float, list[float]]:
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    start = time.perf_counter()

    async def client() -> None:
        _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
        while (before := time.perf_counter()) < start + seconds:
            await connection.ask(next(requests))
            latencies.append(time.perf_counter() - before)
        connection.close()

    await asyncio.gather(*(client() for _ in range(concurrency)))
    return time.perf_counter() - start, latencies


if __name__ == "__main__":
    sys.exit(main())
