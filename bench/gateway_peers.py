"""The gateway beside other servers' HTTP fronts: `python -m bench.gateway_peers [--out FILE]`.

Each server does the same: reads JSON, tokenises with all-MiniLM-L6-v2's tokenizer, gets ready rows
of 1,024 float32 from a fake, answers base64. Hotbed's fake is a Tulip process behind gRPC with its
real batching; infinity's is its own dummy model in the same process (`bench.front_infinity`);
vLLM's a stub engine client in the same process (`bench.front_vllm`), so that it does not pay for
the hop to its engine's process. Servers run side by side and are asked in turns, so that the
machine's noise meets all. CPU is user and system time of the server's process, all threads; for
Hotbed also with Tulip's.

    python -m venv INF && INF/bin/pip install 'infinity-emb[server]' tokenizers
    pip install --target VLLM vllm==0.22.0    # Version in its METADATA set to 0.22.0+cpu
    python -m bench.gateway_peers --infinity-python INF/bin/python --vllm-path VLLM
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.ivy_overhead import DIMENSIONS, cpu_seconds, drive, started
from hotbed import __version__
from hotbed.bench import rows
from hotbed.bench.service import free_port
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.defaults import DEFAULT_MODEL

LOADS = {"1x30 words": (1, 30, 4000), "32x100 words": (32, 100, 200)}
CONCURRENCIES = (1, 16, 256)
START_TIMEOUT_S = 300.0
HERE = Path(__file__).parent


@dataclass
class Front:
    """A server that runs, and what was measured of it by (load, concurrency)."""

    system: str
    version: str
    port: int
    process: psutil.Process
    behind: list[psutil.Process] = field(default_factory=list)
    tokenizer: str = "Hugging Face's"
    latencies: dict[Any, list[float]] = field(default_factory=lambda: defaultdict(list))
    seconds: dict[Any, float] = field(default_factory=lambda: defaultdict(float))
    cpu: dict[Any, float] = field(default_factory=lambda: defaultdict(float))
    cpu_behind: dict[Any, float] = field(default_factory=lambda: defaultdict(float))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--infinity-python", help="Python of an environment with infinity")
    parser.add_argument("--vllm-path", help="folder with vLLM, for PYTHONPATH")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="a measurement in a round")
    parser.add_argument("--concurrency", type=int, nargs="*", default=list(CONCURRENCIES))
    parser.add_argument("--machine", default="", help="what to say of the machine in the rows")
    parser.add_argument("--out", type=Path, help="results file to append to")
    arguments = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        # With its own choice of tokenizer, and with the one that the others have.
        fronts = [stack.enter_context(hotbed("auto")), stack.enter_context(hotbed("off"))]
        if arguments.infinity_python:
            fronts.append(stack.enter_context(infinity(arguments.infinity_python)))
        if arguments.vllm_path:
            fronts.append(stack.enter_context(vllm(arguments.vllm_path)))
        for front in fronts:
            check(front)
        client = stack.enter_context(ProcessPoolExecutor(1, mp_context=spawn))
        for number in range(arguments.rounds):
            for key in itertools.product(LOADS, arguments.concurrency):
                # Another order every round: who comes first does not always come first.
                for i in range(len(fronts)):
                    measure(client, fronts[(i + number) % len(fronts)], key, arguments.seconds)
            print(f"round {number + 1} of {arguments.rounds}", flush=True)
        measured = [
            row
            for key in itertools.product(LOADS, arguments.concurrency)
            for row in rows_of(fronts, key, arguments)
        ]
    columns = ["system", "tokenizer", "load", "concurrency", "requests_per_s", "p50_ms", "p99_ms"]
    columns += ["cpu_us_per_request", "cpu_us_with_engine"]
    rows.show("HTTP fronts over fakes", measured, columns)
    if arguments.out:
        rows.append(arguments.out, measured)
    return 0


def measure(client: ProcessPoolExecutor, front: Front, key: Any, seconds: float) -> None:
    load, concurrency = key
    shape = LOADS[load]
    client.submit(drive, front.port, shape, concurrency, seconds / 4).result()
    cpu, behind = cpu_seconds(front.process), sum(map(cpu_seconds, front.behind))
    taken, latencies = client.submit(drive, front.port, shape, concurrency, seconds).result()
    front.cpu[key] += cpu_seconds(front.process) - cpu
    front.cpu_behind[key] += sum(map(cpu_seconds, front.behind)) - behind
    front.latencies[key] += latencies
    front.seconds[key] += taken


def rows_of(fronts: list[Front], key: Any, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    load, concurrency = key
    made = []
    for front in fronts:
        latencies = front.latencies[key]
        alone = front.cpu[key] / len(latencies) * 1e6
        row = rows.row(
            "gateway-peers", "ivy", "fake", load=load, concurrency=concurrency, n=len(latencies),
            requests_per_s=round(len(latencies) / front.seconds[key], 1),
            cpu_us_per_request=round(alone),
            cpu_us_with_engine=round(alone + front.cpu_behind[key] / len(latencies) * 1e6),
            **rows.percentiles(latencies),
            tokenizer=front.tokenizer,
            settings={"rounds": arguments.rounds, "seconds": arguments.seconds,
                      "machine": arguments.machine},
        )  # fmt: skip
        made.append({**row, "system": front.system, "version": front.version})
    return made


def check(front: Front) -> None:
    """As many rows of the right size as texts were sent."""
    answer = ask(front.port, ["a cat", "a fast dog", "the house"])
    sizes = [len(row["embedding"]) * 3 // 4 // 4 for row in answer["data"]]
    if len(sizes) != 3 or any(abs(size - DIMENSIONS) > 1 for size in sizes):
        raise RuntimeError(f"{front.system} answers rows of {sizes} dimensions")


def ask(port: int, texts: list[str]) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/embeddings",
        json.dumps({"model": "fake", "input": texts, "encoding_format": "base64"}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


@contextlib.contextmanager
def hotbed(fast_tokenizers: str) -> Iterator[Front]:
    before = set(psutil.Process().children())
    # 256 requests of 32 texts are a million tokens, more than a queue takes by default.
    with started(0.0, fast_tokenizers, max_queue_tokens=4_000_000) as (port, ivy):
        tulip = list(set(psutil.Process().children()) - before - {ivy})
        tokenizer = "nanotoken" if fast_tokenizers == "auto" else "Hugging Face's"
        yield Front("hotbed", __version__, port, ivy, behind=tulip, tokenizer=tokenizer)


@contextlib.contextmanager
def infinity(python: str) -> Iterator[Front]:
    code = "import importlib.metadata as m; print(m.version('infinity-emb'))"
    version = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    tokenizer = load_checkpoint(DEFAULT_MODEL).folder / "tokenizer.json"
    command = [python, str(HERE / "front_infinity.py"), str(tokenizer)]
    with peer("infinity", version.stdout.strip(), command, {"INFINITY_URL_PREFIX": "/v1"}) as front:
        yield front


@contextlib.contextmanager
def vllm(path: str) -> Iterator[Front]:
    (metadata,) = Path(path).glob("vllm-*.dist-info")
    version = metadata.name.split("-")[1].removesuffix(".dist")
    command = [
        sys.executable,
        str(HERE / "front_vllm.py"),
        str(load_checkpoint(DEFAULT_MODEL).folder),
    ]
    environment = {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with peer("vllm", version, command, environment) as front:
        yield front


@contextlib.contextmanager
def peer(
    system: str, version: str, command: list[str], environment: dict[str, str]
) -> Iterator[Front]:
    port = free_port()
    process = subprocess.Popen(
        [*command, str(port), str(DIMENSIONS)],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=Path(command[0]).parent,  # no module of ours is found by accident
    )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{system} did not start: {' '.join(command)}")
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                ask(port, ["a cat"])
                break
            time.sleep(0.5)
        yield Front(system, version, port, psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
