"""Replicas on several cards against one, over HTTP: `python -m bench.two_gpus --tokenizer FILE`.

    python -m bench.two_gpus --tokenizer tokenizer.json --kernel-dir kernels --out two-gpus.jsonl

`hotbed serve --replicas N`, each replica on a card of its own, for N = 1 and 2 in turn, --rounds
times. The load is that of the throughput suite: requests of 100 texts from four client processes,
each of which has --in-flight of them on their way. Every service's rows are held to the first
one's before it is timed. Says how many times the rate of one replica several reach, and ends with 1
below --aim. `--device cpu --model all-MiniLM-L6-v2` runs the same on a CPU, to try the script.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import json
import multiprocessing
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from bench.full_size import cosines
from bench.http_load import MIN_COSINE, MODEL, connect, texts_of
from hotbed.bench import rows
from hotbed.bench.folders import write_folder
from hotbed.bench.service import any_ended, free_port, wait_until_ready
from hotbed.bench.shapes import SHAPES

CLIENT_PROCESSES = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a tokenizer.json")
    parser.add_argument("--kernel-dir", type=Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--model", help="a folder or package; unset: the 0.6B shape at random")
    parser.add_argument("--tokens", type=int, nargs="*", default=[512])
    parser.add_argument("--batch", type=int, default=100, help="texts a request")
    parser.add_argument("--in-flight", type=int, default=4, help="requests, of a client process")
    parser.add_argument("--seconds", type=float, default=15, help="a measurement")
    parser.add_argument("--replicas", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--aim", type=float, default=1.95)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    options = parser.parse_args()
    if options.device == "cuda" and torch.cuda.device_count() < max(options.replicas):
        print(f"there are {torch.cuda.device_count()} CUDA devices", file=sys.stderr)
        return 2
    tokenizer = Tokenizer.from_file(str(options.tokenizer))
    tokenizer.no_padding()
    bodies = {n: bodies_of(texts_of(tokenizer, n), options.batch) for n in options.tokens}
    measured: list[dict[str, Any]] = []
    spawn = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    with tempfile.TemporaryDirectory() as name, spawn.Pool(CLIENT_PROCESSES) as clients:
        model = options.model
        if model is None:
            folder = Path(name) / "model"
            device = torch.device(options.device)
            write_folder(
                SHAPES[MODEL], folder, device=device, texts=[], tokenizer=options.tokenizer
            )
            model = str(folder)
            torch.cuda.empty_cache()
        expected: dict[int, np.ndarray] = {}
        for _ in range(options.rounds):
            for replicas in options.replicas:
                with service(model, replicas, options) as port:
                    for tokens, some in bodies.items():
                        check(port, tokens, some[0], expected)
                        measured.append(measure(clients, port, tokens, some, replicas, options))
    columns = ["settings", "tokens", "p50_ms", "p99_ms", "seq_per_s"]
    rows.show("Replicas", measured, columns)
    if options.out:
        rows.append(options.out, measured)
    return report(measured, options)


def report(measured: list[dict[str, Any]], options: argparse.Namespace) -> int:
    """Prints each ratio to the fewest replicas; 1 if that of the most is below the aim."""
    below = False
    for tokens in options.tokens:
        rate = {
            replicas: statistics.median(
                row["seq_per_s"]
                for row in measured
                if row["tokens"] == tokens and row["replicas"] == replicas
            )
            for replicas in options.replicas
        }
        fewest, most = min(rate), max(rate)
        for replicas, texts_a_second in rate.items():
            ratio = texts_a_second / rate[fewest]
            print(f"{tokens} tokens, {replicas} replicas: {texts_a_second:.0f}/s, {ratio:.3f}")
        below |= rate[most] / rate[fewest] < options.aim * most / fewest / 2
    return int(below)


def bodies_of(texts: list[str], batch: int) -> list[bytes]:
    """A few requests of `batch` texts each, the texts in other orders."""
    made = []
    for shift in range(4):
        some = [texts[(i + shift) % len(texts)] for i in range(batch)]
        made.append(json.dumps({"input": some, "encoding_format": "base64"}).encode())
    return made


@contextlib.contextmanager
def service(model: str, replicas: int, options: argparse.Namespace) -> Iterator[int]:
    """The port of a service that is ready."""
    port = free_port()
    command = [
        sys.executable, "-m", "hotbed.cli", "serve", model, "--port", str(port),
        "--workers", str(options.workers), "--device", options.device,
        "--replicas", str(replicas), "--tulip.capture", "start",
    ]  # fmt: skip
    if options.kernel_dir:
        command += ["--tulip.kernel-dir", str(options.kernel_dir)]
    server = subprocess.Popen(command, start_new_session=True)
    try:
        wait_until_ready(f"http://127.0.0.1:{port}/ready", any_ended([server]))
        yield port
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def check(port: int, tokens: int, body: bytes, expected: dict[int, np.ndarray]) -> None:
    """Rows of every service are those of the first."""
    got = ask(port, body)
    worst = float(cosines(got, expected.setdefault(tokens, got)).min())
    if not worst >= MIN_COSINE:
        sys.exit(f"two services differ: cosine {worst}; nothing timed")


def ask(port: int, body: bytes) -> np.ndarray:
    """Rows [texts, dimensions] of one request."""
    data = json.loads(post(connect(port), body))["data"]
    return np.stack([np.frombuffer(base64.b64decode(d["embedding"]), "<f4") for d in data])


def post(connection: http.client.HTTPConnection, body: bytes) -> bytes:
    """What the service answers, JSON; RuntimeError if it refuses."""
    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != http.HTTPStatus.OK:
        raise RuntimeError(f"{answer.status}: {content[:300]!r}")
    return content


def measure(
    clients: Pool,
    port: int,
    tokens: int,
    bodies: list[bytes],
    replicas: int,
    options: argparse.Namespace,
) -> dict[str, Any]:
    for seconds in (options.seconds / 3, options.seconds):  # the first to warm up
        shares = [(port, bodies, options.in_flight, seconds)] * CLIENT_PROCESSES
        start = time.perf_counter()
        parts = clients.starmap(load, shares, chunksize=1)
        wall = time.perf_counter() - start
    times = [s for part in parts for s in part]
    where = torch.cuda.get_device_name() if options.device == "cuda" else rows.cpu_name()
    row = rows.row(
        "replicas", "hotbed", options.model or MODEL, n=options.batch, tokens=tokens,
        concurrency=CLIENT_PROCESSES * options.in_flight, replicas=replicas,
        **rows.percentiles(times), seq_per_s=round(len(times) * options.batch / wall, 1),
        tokens_per_s=round(len(times) * options.batch * tokens / wall), device=where,
        commit=options.commit,
        settings=f"hotbed serve, {replicas} replicas, {options.workers} workers",
    )  # fmt: skip
    print(row, flush=True)
    return row


def load(port: int, bodies: list[bytes], in_flight: int, seconds: float) -> list[float]:
    """Seconds of each request of one client process; a failure is raised."""
    end = time.perf_counter() + seconds
    times: list[list[float]] = [[] for _ in range(in_flight)]
    failures: list[Exception] = []

    def client(index: int) -> None:
        connection = connect(port)
        number = index
        try:
            while (start := time.perf_counter()) < end:
                body = bodies[number % len(bodies)]
                post(connection, body)
                times[index].append(time.perf_counter() - start)
                number += 1
        except (OSError, RuntimeError, http.client.HTTPException) as error:
            failures.append(error)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(in_flight)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [s for some in times for s in some]


if __name__ == "__main__":
    sys.exit(main())
