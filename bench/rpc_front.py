"""What gRPC costs a Tulip beside its loop, and what a front of its own would: `python -m
bench.rpc_front [--out FILE]`.

Two servers echo messages of the size of a short text's item and its row of 1,024 float32: one over
a gRPC stream as Tulip's (grpc.aio on uvloop, bytes as they are, no protobuf), one over a Unix
socket with the length before each message. A Tulip whose gRPC lived in a process of its own would
pay the second in place of the first, and every message would have one hop more: the first's round
trip and the second's. `loop_us` is the CPU time of the server's event loop's thread, which holds
the GIL that the engine's thread needs; `server_us` is that of all its threads. `outstanding`
messages are under way at a time.

Run it on an idle machine, the card's host above all. See docs/tulip.md for what came of it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import uvloop

from hotbed.bench import rows

REQUEST, REPLY = b"q" * 260, b"r" * 4200
METHOD = "/bench.Echo/Stream"
LENGTH_BYTES = 4
TICK_S = 1 / os.sysconf("SC_CLK_TCK")

Send = Callable[[], Awaitable[None]]
Receive = Callable[[], Awaitable[None]]


def plain(message: bytes) -> bytes:
    return message


async def serve_grpc(path: str) -> None:
    async def echo(_: object, context: Any) -> None:
        while await context.read() is not grpc.aio.EOF:
            await context.write(REPLY)

    handler = grpc.stream_stream_rpc_method_handler(echo, plain, plain)
    server = grpc.aio.server()
    service, _, name = METHOD.strip("/").partition("/")
    generic = grpc.method_handlers_generic_handler(service, {name: handler})
    server.add_generic_rpc_handlers((generic,))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()


class Framed(asyncio.Protocol):
    """Calls `on_message` for each message with its length before it."""

    def __init__(self, on_message: Callable[[Framed, bytes], None]) -> None:
        self._on_message = on_message
        self._rest = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        start = 0
        while len(data) - start >= LENGTH_BYTES:
            end = (
                start + LENGTH_BYTES + int.from_bytes(data[start : start + LENGTH_BYTES], "little")
            )
            if len(data) < end:
                break
            self._on_message(self, data[start + LENGTH_BYTES : end])
            start = end
        self._rest = data[start:]

    def send(self, message: bytes) -> None:
        self._transport.writelines((len(message).to_bytes(LENGTH_BYTES, "little"), message))


async def serve_framed(path: str) -> None:
    loop = asyncio.get_running_loop()
    await loop.create_unix_server(lambda: Framed(lambda own, _: own.send(REPLY)), path)
    print("ready", flush=True)
    await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def over_grpc(path: str) -> AsyncIterator[tuple[Send, Receive]]:
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        call = channel.stream_stream(METHOD, plain, plain)()

        async def send() -> None:
            await call.write(REQUEST)

        async def receive() -> None:
            if await call.read() != REPLY:
                raise RuntimeError("the echo is wrong")

        yield send, receive
        call.cancel()


@contextlib.asynccontextmanager
async def over_socket(path: str) -> AsyncIterator[tuple[Send, Receive]]:
    replies: asyncio.Queue[bytes] = asyncio.Queue()
    transport, framed = await asyncio.get_running_loop().create_unix_connection(
        lambda: Framed(lambda _, message: replies.put_nowait(message)), path
    )

    async def send() -> None:
        framed.send(REQUEST)

    async def receive() -> None:
        if await replies.get() != REPLY:
            raise RuntimeError("the echo is wrong")

    yield send, receive
    transport.close()


SERVERS = {"grpc": serve_grpc, "framed": serve_framed}
CLIENTS = {"grpc": over_grpc, "framed": over_socket}


@contextlib.contextmanager
def started(kind: str, path: str) -> Iterator[int]:
    """The server's process id."""
    command = [sys.executable, "-m", "bench.rpc_front", "--serve", kind, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError(f"the {kind} server did not start")
            yield process.pid
        finally:
            process.kill()


def cpu_s(stat: Path) -> float:
    """User and system seconds, of proc(5)'s stat of a process or thread."""
    fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


async def measure(kind: str, path: str, pid: int, outstanding: int, n: int) -> dict[str, Any]:
    process, thread = Path(f"/proc/{pid}/stat"), Path(f"/proc/{pid}/task/{pid}/stat")
    async with CLIENTS[kind](path) as (send, receive):

        async def drive(count: int) -> None:
            for _ in range(outstanding):
                await send()
            for _ in range(count):
                await receive()
                await send()
            for _ in range(outstanding):
                await receive()

        await drive(n // 5)
        before = cpu_s(process), cpu_s(thread), time.process_time(), time.perf_counter()
        await drive(n)
        after = cpu_s(process), cpu_s(thread), time.process_time(), time.perf_counter()
    server, loop, client, wall = (
        round((b - a) / n * 1e6, 1) for a, b in zip(before, after, strict=True)
    )
    return rows.row(
        "rpc-front", "hotbed", "echo", rpc=kind, outstanding=outstanding, n=n, server_us=server,
        loop_us=loop, client_us=client, wall_us=wall, load_1min=os.getloadavg()[0],
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=20_000, help="messages a measurement")
    parser.add_argument("--out", type=Path, help="results file to append to")
    parser.add_argument("--serve", nargs=2, metavar=("KIND", "PATH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        kind, path = options.serve
        uvloop.run(SERVERS[kind](path))
        return 0
    measured = []
    for kind in SERVERS:
        for outstanding in (1, 8):
            with tempfile.TemporaryDirectory() as folder, started(kind, f"{folder}/s") as pid:
                measured.append(
                    uvloop.run(measure(kind, f"{folder}/s", pid, outstanding, options.n))
                )
    columns = ["rpc", "outstanding", "server_us", "loop_us", "client_us", "wall_us", "load_1min"]
    rows.show("A message", measured, columns)
    if options.out:
        rows.append(options.out, measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
