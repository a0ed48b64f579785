"""Several replicas on one card, with and without CUDA MPS: `python -m bench.shared_device`.

`hotbed serve --replicas N --replicas-per-device N` for N = 1, 2, 3 over HTTP, texts of 32 and 128
tokens: what one Python process a card cannot do for short texts, two may. Without MPS the card
switches between processes in slices of time; with it their kernels run side by side. Clients are
processes of their own, so that theirs is not the time that is measured. A form that cannot start is
named and left out. Needs a card and the same arguments as `bench.http_load`.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from tokenizers import Tokenizer

from bench.full_size import cosines
from bench.http_load import (
    MIN_COSINE,
    MODEL,
    ask,
    body_of,
    connect,
    engine_rows,
    load,
    texts_of,
)
from hotbed.bench import rows
from hotbed.bench.folders import write_folder
from hotbed.bench.service import any_ended, free_port, wait_until_ready
from hotbed.bench.shapes import SHAPES

CLIENT_PROCESSES = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a tokenizer.json")
    parser.add_argument("--kernel-dir", type=Path)
    parser.add_argument("--tokens", type=int, nargs="*", default=[32, 128])
    parser.add_argument("--concurrency", type=int, nargs="*", default=[4, 16, 64, 256])
    parser.add_argument("--replicas", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--requests", type=int, default=4000, help="a measurement")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    options = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(options.tokenizer))
    texts = {n: texts_of(tokenizer, n) for n in options.tokens}
    measured: list[dict[str, Any]] = []
    spawn = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    with tempfile.TemporaryDirectory() as name, spawn.Pool(CLIENT_PROCESSES) as clients:
        folder = Path(name) / "model"
        cuda = torch.device("cuda")
        write_folder(SHAPES[MODEL], folder, device=cuda, texts=[], tokenizer=options.tokenizer)
        torch.cuda.empty_cache()
        expected = engine_rows(folder, tokenizer, texts, options.kernel_dir)
        for mps in (False, True):
            with mps_daemon(Path(name), wanted=mps) as environment:
                if environment is None:
                    print("MPS cannot be started here: left out", flush=True)
                    continue
                for replicas in options.replicas:
                    if mps and replicas == 1:
                        continue
                    form = f"{replicas} replicas on one card" + (", MPS" if mps else "")
                    try:
                        with service(folder, replicas, options, environment) as (port, server):
                            check(port, texts, expected)
                            measured += measure(clients, port, server, texts, form, options)
                    except RuntimeError as error:
                        print(f"{form}: {error}: left out", flush=True)
    columns = ["settings", "tokens", "concurrency", "p50_ms", "p99_ms", "seq_per_s"]
    rows.show("One card", measured, [*columns, "replica_cpu_us", "worker_cpu_us"])
    if options.out:
        rows.append(options.out, measured)
    return 0


@contextlib.contextmanager
def mps_daemon(folder: Path, *, wanted: bool) -> Iterator[dict[str, str] | None]:
    """The environment of processes that share the card; None where MPS cannot be started."""
    environment = dict(os.environ)
    if not wanted:
        yield environment
        return
    for name in ("PIPE", "LOG"):
        directory = folder / f"mps-{name.lower()}"
        directory.mkdir()
        environment[f"CUDA_MPS_{name}_DIRECTORY"] = str(directory)
    control = "nvidia-cuda-mps-control"
    try:
        subprocess.run([control, "-d"], env=environment, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    try:
        yield environment
    finally:
        subprocess.run([control], env=environment, input=b"quit\n", check=False)


@contextlib.contextmanager
def service(
    folder: Path, replicas: int, options: argparse.Namespace, environment: dict[str, str]
) -> Iterator[tuple[int, psutil.Process]]:
    """A service that is ready; its port and its supervisor."""
    port = free_port()
    command = [
        sys.executable, "-m", "hotbed.cli", "serve", str(folder), "--port", str(port),
        "--workers", str(options.workers), "--device", "cuda", "--replicas", str(replicas),
        "--replicas-per-device", str(replicas),
    ]  # fmt: skip
    if options.kernel_dir:
        command += ["--tulip.kernel-dir", str(options.kernel_dir)]
    server = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        wait_until_ready(f"http://127.0.0.1:{port}/ready", any_ended([server]))
        yield port, psutil.Process(server.pid)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def check(port: int, texts: dict[int, list[str]], expected: dict[int, np.ndarray]) -> None:
    """Rows of the service are those of the engine."""
    for tokens, some in texts.items():
        got = np.stack([ask(connect(port), body_of(text)) for text in some[:4]])
        cosine = float(cosines(got, expected[tokens]).min())
        if not cosine >= MIN_COSINE:
            sys.exit(f"the service and the engine differ: cosine {cosine}; nothing timed")


def measure(
    clients: Pool,
    port: int,
    server: psutil.Process,
    texts: dict[int, list[str]],
    form: str,
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    """A row each for lengths and concurrencies."""
    made = []
    for tokens, some in texts.items():
        for concurrency in options.concurrency:
            drive(clients, port, some, concurrency, max(options.requests // 4, 40 * concurrency))
            before = cpu_seconds(server, "hotbed.tulip"), cpu_seconds(server, "hotbed.ivy")
            seconds, wall = drive(clients, port, some, concurrency, options.requests)
            after = cpu_seconds(server, "hotbed.tulip"), cpu_seconds(server, "hotbed.ivy")
            replica_us, worker_us = (
                round((b - a) / len(seconds) * 1e6) for a, b in zip(before, after, strict=True)
            )
            made.append(
                rows.row(
                    "shared-device", "hotbed", "pplx-embed-0.6b", n=1, tokens=tokens,
                    concurrency=concurrency, **rows.percentiles(seconds),
                    seq_per_s=round(len(seconds) / wall, 1),
                    tokens_per_s=round(len(seconds) * tokens / wall),
                    replica_cpu_us=replica_us, worker_cpu_us=worker_us,
                    device=torch.cuda.get_device_name(), commit=options.commit,
                    settings=f"{form}, {options.workers} workers, bf16",
                )
            )  # fmt: skip
            print(made[-1], flush=True)
    return made


def cpu_seconds(server: psutil.Process, module: str) -> float:
    """Of all the service's processes that run this module."""
    total = 0.0
    for child in server.children(recursive=True):
        if module in child.cmdline():
            times = child.cpu_times()
            total += times.user + times.system
    return total


def drive(
    clients: Pool, port: int, texts: list[str], concurrency: int, count: int
) -> tuple[list[float], float]:
    """Seconds of each request, and of all, from several client processes."""
    processes = min(CLIENT_PROCESSES, concurrency)
    each = concurrency // processes
    shares = [(port, texts, each, max(count // processes, each))] * processes
    start = time.perf_counter()
    parts = clients.starmap(load, shares, chunksize=1)
    wall = time.perf_counter() - start
    return [s for seconds, _ in parts for s in seconds], wall


if __name__ == "__main__":
    sys.exit(main())
