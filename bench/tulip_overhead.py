"""What Tulip itself costs: `python -m bench.tulip_overhead [--out FILE]`.

One Tulip process whose fake engine answers rows of 1,024 dimensions at once, over a Unix socket;
the client is this process. One item is one sequence of 47 token ids. CPU is user and system time of
a whole process, all threads; `loop_cpu_us` is that of Tulip's event loop's thread, which holds the
GIL that the engine's thread needs; the fake engine's own part is `fake_us`, measured by itself. At
concurrency 1 the latency is the bare round trip; `inside_ms` is the part from acceptance to result,
so loop, threads and fake. On a machine with few cores both processes share them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import uvloop

from hotbed.bench import rows
from hotbed.core.ragged import RaggedBatch
from hotbed.ivy.local_call import LocalCall
from hotbed.tulip.testing import FAKE_INFO, expected_rows
from hotbed.wire import tulip_pb2 as pb
from hotbed.wire import tulip_pb2_grpc as pb_grpc
from hotbed.wire.codec import decode_rows, encode_ragged
from hotbed.wire.limits import channel_options

INFO = replace(FAKE_INFO, dimensions=1024)
NUM_TOKENS = 47
CONCURRENCIES = (1, 64)

Ask = Callable[[RaggedBatch], Awaitable[pb.Rows]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="results file to append to")
    parser.add_argument("--seconds", type=float, default=3.0, help="a measurement")
    parser.add_argument("--step-ms", type=float, default=0.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/t"
        with started(address, arguments.step_ms) as tulip:
            measured = uvloop.run(measure(address, tulip, arguments.seconds, arguments.step_ms))
    columns = ["rpc", "concurrency", "items_per_s", "p50_ms", "p99_ms", "inside_ms"]
    columns += ["client_cpu_us", "tulip_cpu_us", "loop_cpu_us", "fake_us"]
    rows.show("One Tulip process", measured, columns)
    if arguments.out:
        rows.append(arguments.out, measured)
    return 0


@contextlib.contextmanager
def started(address: str, step_ms: float) -> Iterator[psutil.Process]:
    """The process of a Tulip that starts; clients wait for it."""
    command = [
        sys.executable, "-m", "hotbed.tulip.testing", f"--listen={address}",
        f"--dimensions={INFO.dimensions}", f"--step-ms={step_ms}", "--local-stream",
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


async def measure(
    address: str, tulip: psutil.Process, seconds: float, step_ms: float
) -> list[dict[str, object]]:
    measured = []
    async with grpc.aio.insecure_channel(address, options=channel_options()) as channel:
        stub = pb_grpc.TulipStub(channel)
        await stub.Info(pb.InfoRequest(), wait_for_ready=True, timeout=30)
        batches = itertools.cycle(make_batches(1000))
        for rpc, concurrency in itertools.product((unary, stream, local), CONCURRENCIES):
            async with rpc(stub, address) as ask:
                await check(ask, next(batches))
                await drive(ask, batches, concurrency, seconds / 3)
                before = cpu_seconds(psutil.Process()), cpu_seconds(tulip), loop_seconds(tulip)
                elapsed, latencies, inside_us = await drive(ask, batches, concurrency, seconds)
                after = cpu_seconds(psutil.Process()), cpu_seconds(tulip), loop_seconds(tulip)
            n = len(latencies)
            client_us, tulip_us, loop_us = (
                (b - a) / n * 1e6 for a, b in zip(before, after, strict=True)
            )
            measured.append(
                rows.row(
                    "tulip-overhead", "tulip", "fake", rpc=rpc.__name__, step_ms=step_ms,
                    concurrency=concurrency, n=n, items_per_s=round(n / elapsed, 1),
                    **rows.percentiles(latencies),
                    inside_ms=round(float(np.median(inside_us)) / 1e3, 3),
                    client_cpu_us=round(client_us, 1), tulip_cpu_us=round(tulip_us, 1),
                    loop_cpu_us=round(loop_us, 1),
                    fake_us=round(fake_us(concurrency), 1),
                )
            )  # fmt: skip
    return measured


def make_batches(num: int) -> list[RaggedBatch]:
    ids = np.random.default_rng(0).integers(0, INFO.vocab_size, (num, NUM_TOKENS), dtype=np.int32)
    return [RaggedBatch.from_lengths(row, np.array([NUM_TOKENS], dtype=np.int32)) for row in ids]


def fake_us(num_sequences: int) -> float:
    """What the fake engine takes for one row in a step of so many."""
    batch = RaggedBatch.concatenate(make_batches(num_sequences))
    times = []
    for _ in range(50):
        start = time.perf_counter()
        expected_rows(batch, info=INFO)
        times.append(time.perf_counter() - start)
    return float(np.median(times)) / num_sequences * 1e6


async def check(ask: Ask, batch: RaggedBatch) -> None:
    """The row that comes back is the item's."""
    if not np.array_equal(decode_rows(await ask(batch)), expected_rows(batch, info=INFO)):
        raise RuntimeError("a row is wrong")


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def loop_seconds(process: psutil.Process) -> float:
    """Of the thread that runs the event loop, which is the first one."""
    (first,) = (t for t in process.threads() if t.id == process.pid)
    return first.user_time + first.system_time


async def drive(
    ask: Ask, batches: Iterator[RaggedBatch], concurrency: int, seconds: float
) -> tuple[float, list[float], list[int]]:
    """(seconds taken, seconds of each item, its µs inside Tulip), `concurrency` items at a time."""
    latencies: list[float] = []
    inside_us: list[int] = []
    start = time.perf_counter()

    async def client() -> None:
        while (before := time.perf_counter()) < start + seconds:
            reply = await ask(next(batches))
            latencies.append(time.perf_counter() - before)
            inside_us.append(reply.timings.total_us)

    await asyncio.gather(*(client() for _ in range(concurrency)))
    return time.perf_counter() - start, latencies, inside_us


@contextlib.asynccontextmanager
async def unary(stub: pb_grpc.TulipStub, _: str) -> AsyncIterator[Ask]:
    """One call an item."""

    async def ask(batch: RaggedBatch) -> pb.Rows:
        request = pb.EmbedRequest()
        encode_ragged(batch, into=request.batch)
        reply: pb.EmbedReply = await stub.Embed(request)
        return reply.rows

    yield ask


@contextlib.asynccontextmanager
async def stream(stub: pb_grpc.TulipStub, _: str) -> AsyncIterator[Ask]:
    """One stream over gRPC."""
    async with items_on(stub.Stream()) as ask:
        yield ask


@contextlib.asynccontextmanager
async def local(_: pb_grpc.TulipStub, address: str) -> AsyncIterator[Ask]:
    """One stream over a Unix socket without gRPC."""
    async with items_on(await LocalCall.open(address)) as ask:
        yield ask


@contextlib.asynccontextmanager
async def items_on(call: Any) -> AsyncIterator[Ask]:
    """All items that wait when the writer wakes share a message."""
    waiting: dict[int, asyncio.Future[pb.Rows]] = {}
    outbox: list[tuple[int, RaggedBatch]] = []
    wake = asyncio.Event()
    ids = itertools.count()

    async def ask(batch: RaggedBatch) -> pb.Rows:
        tag = next(ids)
        waiting[tag] = asyncio.get_running_loop().create_future()
        outbox.append((tag, batch))
        wake.set()
        return await waiting[tag]

    async def write() -> None:
        while True:
            await wake.wait()
            wake.clear()
            request = pb.StreamRequest()
            for tag, batch in outbox:
                encode_ragged(batch, into=request.items.add(id=tag).batch)
            outbox.clear()
            await call.write(request)

    async def read() -> None:
        while (reply := await call.read()) is not grpc.aio.EOF:
            for result in reply.results:
                if result.WhichOneof("result") == "error":
                    waiting.pop(result.id).set_exception(RuntimeError(result.error.message))
                else:
                    waiting.pop(result.id).set_result(result.rows)

    tasks = [asyncio.ensure_future(write()), asyncio.ensure_future(read())]
    yield ask
    call.cancel()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


if __name__ == "__main__":
    sys.exit(main())
