"""What the whole path adds to the engine for one client: `python -m bench.added_latency`.

`hotbed serve` on the default model, one keep-alive connection, one short text at a time, against
the same engine in this process: `step()` on token ids until the rows are there. Blocks of both take
turns; medians of all blocks. The difference is HTTP, JSON, tokenising, gRPC both ways, queue and
scheduling. Nothing is timed before both give the same row.
"""

from __future__ import annotations

import argparse
import base64
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hotbed.bench import rows
from hotbed.bench.service import any_ended, free_port, wait_until_ready
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.defaults import DEFAULT_MODEL
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.engine import RoseEngine
from hotbed.text.tokenizer import Tokenizer

TEXT = "what is the boiling point of water at high altitude"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--calls", type=int, default=100, help="in a block")
    arguments = parser.parse_args()
    step, batch = engine_step()
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "hotbed.cli", "serve", "--port", str(port), "--workers", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until_ready(f"http://127.0.0.1:{port}/ready", any_ended([server]))
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = json.dumps({"input": TEXT, "encoding_format": "base64"}).encode()
        request = (
            b"POST /v1/embeddings HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)
        ) + body

        def ask() -> np.ndarray:
            connection.sendall(request)
            answer = json.loads(read_body(connection))
            return np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), "<f4")

        if not np.allclose(ask(), step(), atol=1e-6):
            sys.exit("the service and the engine give different rows; nothing was timed")
        times: dict[str, list[float]] = {"engine": [], "http": []}
        for _ in range(arguments.blocks):
            for name, call in (("engine", step), ("http", ask)):
                time.sleep(0.3)  # threads of the other side go to sleep
                times[name] += timed(call, arguments.calls)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
    added = float(np.median(times["http"]) - np.median(times["engine"])) * 1e3
    measured: list[dict[str, Any]] = [
        rows.row(
            "cpu-added-latency",
            "hotbed",
            "all-minilm-l6-v2",
            n=1,
            tokens=batch.num_tokens,
            concurrency=1,
            **rows.percentiles(seconds),
            settings=settings,
        )
        for seconds, settings in (
            (times["engine"], "engine.step() in process"),
            (times["http"], "hotbed serve, HTTP, 1 worker, 1 replica"),
        )
    ]
    rows.show("One short text", measured, ["settings", "p50_ms", "p90_ms", "p99_ms"])
    print(f"added by the whole path: {added:.2f} ms p50")
    if arguments.out:
        rows.append(arguments.out, measured)
    return 0


def engine_step() -> tuple[Callable[[], np.ndarray], RaggedBatch]:
    checkpoint = load_checkpoint(DEFAULT_MODEL)
    engine = RoseEngine.load(checkpoint, device="cpu")
    engine.warm_up()
    tokenizer = Tokenizer.load(
        checkpoint.tokenizer,
        max_tokens=checkpoint.max_tokens,
        vocab_size=engine.info.vocab_size,
    )
    batch = tokenizer.encode([TEXT]).batch
    return lambda: engine.step(batch).wait().rows[0][0], batch


def read_body(connection: socket.socket) -> bytes:
    """Body of one answer; the client is to cost next to nothing, so this is all it does."""
    answer = connection.recv(65536)
    head, _, body = answer.partition(b"\r\n\r\n")
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
    missing = int(fields[b"content-length"]) - len(body)
    while missing:
        part = connection.recv(missing)
        if not part:
            sys.exit("the service closed the connection")
        body += part
        missing -= len(part)
    return body


def timed(call: Callable[[], Any], times: int) -> list[float]:
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
