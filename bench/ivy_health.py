"""How long /health waits while the gateway works on large bodies: `python -m bench.ivy_health`.

One Ivy process in front of a Tulip over a fake engine. A prober in a process of its own asks
/health every 2 ms on one connection, while another client sends one large request after the other:
5 MB of text, 2,000 texts, 2,048 lists of ids, and bad bodies of 5 MB. On a machine with few cores
the prober waits for a core as well: the row of an idle gateway, taken in the same run, says how
long.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import uvloop

from bench.ivy_overhead import Connection, cpu_seconds, started
from hotbed.bench import rows
from hotbed.bench.texts import mixed_texts

_PROBE = b"GET /health HTTP/1.1\r\nHost: ivy\r\n\r\n"
LOADS: dict[str, Callable[[], bytes] | None] = {
    "idle": None,
    "5 MB of text": lambda: _input(["solar panel " * 208] * 2000, truncate=True),
    "2,000 texts": lambda: _input(mixed_texts(2000, min_words=5, max_words=60)),
    "2,048 id lists": lambda: _input([list(range(1000, 1060))] * 2048),
    "5 MB of ids, refused": lambda: _input([7] * 1_600_000),
    "5 MB of empty lists, refused": lambda: _input([[]] * 1_250_000),
    "5 MB of halves of emojis, refused": lambda: b'{"input":"' + b"\\ud83d" * 800_000 + b'"}',
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="a load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--settings", default="", help="what to say of the machine in the rows")
    parser.add_argument("--out", type=Path, help="results file to append to")
    arguments = parser.parse_args()
    bodies = {name: None if make is None else make() for name, make in LOADS.items()}
    waits: dict[str, list[float]] = {name: [] for name in LOADS}
    sent = dict.fromkeys(LOADS, 0)
    cpu = dict.fromkeys(LOADS, 0.0)
    spawn = multiprocessing.get_context("spawn")
    with started(0.0, "auto") as (port, ivy), ProcessPoolExecutor(2, mp_context=spawn) as pool:
        for _ in range(arguments.rounds):
            for name, body in bodies.items():
                before = cpu_seconds(ivy)
                probing = pool.submit(probe, port, arguments.seconds)
                if body is not None:
                    sent[name] += pool.submit(send, port, body, arguments.seconds).result()
                waits[name] += probing.result()
                cpu[name] += cpu_seconds(ivy) - before
    measured = [
        rows.row(
            "ivy-health", "ivy", "fake", load=name, n=len(waits[name]), requests=sent[name],
            **rows.percentiles(waits[name]), cpu_seconds=round(cpu[name], 2),
            settings=arguments.settings,
        )
        for name in LOADS
    ]  # fmt: skip
    rows.show("/health", measured, ["load", "requests", "n", "p50_ms", "p99_ms", "max_ms"])
    if arguments.out:
        rows.append(arguments.out, measured)
    return 0


def _input(value: object, **more: object) -> bytes:
    return json.dumps({"input": value, "encoding_format": "base64", **more}).encode()


def probe(port: int, seconds: float) -> list[float]:
    """Seconds that each of many /health took."""
    return uvloop.run(_probe(port, seconds))


async def _probe(port: int, seconds: float) -> list[float]:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
    waits = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        await connection.ask(_PROBE)
        waits.append(time.perf_counter() - start)
        await asyncio.sleep(0.002)
    connection.close()
    return waits


def send(port: int, body: bytes, seconds: float) -> int:
    """How many requests with this body were answered, one after the other."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/embeddings", body, {"Content-Type": "application/json"}
    )
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        try:
            urllib.request.urlopen(request).read()
        except urllib.error.HTTPError as error:
            if error.code not in (400, 413):
                raise
        count += 1
    return count


if __name__ == "__main__":
    sys.exit(main())
