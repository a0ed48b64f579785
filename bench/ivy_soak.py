"""Ten thousand requests of every dialect at one gateway: `python -m bench.ivy_soak [--out FILE]`.

One Ivy process with an embedder and a reranker, each a Tulip process over a fake engine, and
clients over real HTTP: texts of new words, good requests and wrong ones, compressed bodies, clients
that leave in the middle. Every answer's status is checked; memory is Ivy's own resident set, read
between rounds. It is flat if the rounds after the first fifth do not rise.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import gzip
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bench.ivy_overhead import cpu_seconds
from hotbed.bench import rows
from hotbed.bench.service import any_ended, free_port, wait_until_ready
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.defaults import DEFAULT_MODEL
from tests.support.scorers import make_bert_scorer

NUM_CLIENTS = 16
MIB = 1024 * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, help="results file to append to")
    parser.add_argument("--settings", default="", help="what to say of the machine in the row")
    arguments = parser.parse_args()
    row = soak(arguments.requests, arguments.rounds, arguments.settings)
    print(json.dumps(row))
    if arguments.out:
        rows.append(arguments.out, [row])
    return 1 if row["wrong"] else 0


def soak(num_requests: int, num_rounds: int, settings: str = "") -> dict[str, Any]:
    """The result row."""
    statuses: Counter[str] = Counter()
    memory = []
    with started() as (port, ivy):
        cpu, start = cpu_seconds(ivy), time.perf_counter()
        for number in range(num_rounds):
            statuses.update(asyncio.run(one_round(port, num_requests // num_rounds, number)))
            memory.append(ivy.memory_info().rss / MIB)
            print(f"round {number + 1}: {memory[-1]:.1f} MiB, {dict(statuses)}", flush=True)
        seconds = time.perf_counter() - start
        cpu = cpu_seconds(ivy) - cpu
    settled = memory[num_rounds // 5 :]
    slope = float(np.polyfit(np.arange(len(settled)), settled, 1)[0]) * len(settled)
    count = sum(statuses.values())
    return rows.row(
        "ivy-soak", "ivy", "fake", n=count, concurrency=NUM_CLIENTS, seconds=round(seconds, 1),
        rss_mib_first=round(memory[0], 1), rss_mib_settled=round(settled[0], 1),
        rss_mib_last=round(memory[-1], 1), rss_mib_rise=round(slope, 2),
        cpu_us_per_request=round(cpu / count * 1e6),
        wrong=sum(n for outcome, n in statuses.items() if outcome.endswith("wrong")),
        outcomes=dict(statuses), settings=settings,
    )  # fmt: skip


@contextlib.contextmanager
def started() -> Iterator[tuple[int, psutil.Process]]:
    """(port, Ivy's process) of a gateway with both models."""
    checkpoint = load_checkpoint(DEFAULT_MODEL)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        (folder / "embed").symlink_to(checkpoint.folder)
        scorer = load_checkpoint(str(make_bert_scorer(folder / "rank")))
        models = folder / "models.toml"
        models.write_text(
            "".join(
                f'[[models]]\nmodel = "{folder}/{task}"\nnames = ["{task}"]\n'
                f'replicas = ["unix:{folder}/{task}.sock"]\n'
                for task in ("embed", "rank")
            )
        )
        commands = [
            [
                "hotbed.tulip.testing", f"--listen=unix:{folder}/{task}.sock", f"--name={task}",
                f"--max-tokens={of.max_tokens}", f"--vocab-size={of.config.vocab_size}",
                f"--task={'score' if task == 'rank' else 'embed'}", "--dimensions=384",
            ]
            for task, of in (("embed", checkpoint), ("rank", scorer))
        ]  # fmt: skip
        port = free_port()
        commands.append(["hotbed.ivy", f"--models-file={models}", f"--port={port}", "--offline"])
        processes = []
        for command in commands:
            process = subprocess.Popen([sys.executable, "-m", *command], stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            processes.append(process)
        wait_until_ready(f"http://127.0.0.1:{port}/ready", any_ended(processes))
        yield port, psutil.Process(processes[-1].pid)


def requests(seed: int) -> Iterator[tuple[str, dict[str, Any], int]]:
    """(path, body, status) of one request after the other, of all dialects in turn."""
    draw = random.Random(seed)

    def text(longest: int = 30) -> str:
        return " ".join(f"{draw.randrange(36**4):x}" for _ in range(draw.randint(1, longest)))

    def texts() -> list[str]:
        return [text() for _ in range(draw.choice([1, 1, 2, 8, 40]))]

    ids = [[draw.randrange(1000, 20_000) for _ in range(draw.randint(1, 60))] for _ in range(9)]
    while True:
        pair = {"model": "rank", "query": text(4)}
        yield "/v1/embeddings", {"input": text()}, 200
        yield "/v1/embeddings", {"input": texts(), "encoding_format": "base64"}, 200
        yield "/v1/embeddings", {"input": ids, "dimensions": 64}, 200
        yield "/v1/embeddings", {"input": texts(), "encoding_format": "base64_int8"}, 200
        yield "/v1/embeddings", {"input": texts(), "task": "text-matching"}, 200
        yield "/v1/embeddings", {"input": [text(), ""]}, 400
        yield "/v1/contextualizedembeddings", {"input": [[text(9), text(9)], [text(9)]]}, 200
        yield "/v2/embed", {"texts": texts(), "embedding_types": ["float", "ubinary"]}, 200
        yield "/v1/embed", {"texts": texts(), "truncate": "END"}, 200
        yield "/embed", {"inputs": texts(), "truncate": True}, 200
        yield "/similarity", {"inputs": {"source_sentence": text(), "sentences": texts()}}, 200
        yield "/pooling", {"input": text()}, 200
        yield "/v1/rerank", {**pair, "documents": texts(), "truncate": True}, 200
        yield "/v2/rerank", {**pair, "documents": texts(), "top_n": 1, "truncate": True}, 200
        yield "/rerank", {**pair, "texts": texts(), "truncate": True}, 200
        yield "/v1/score", {"model": "rank", "text_1": text(4), "text_2": text(9)}, 200
        yield "/classify", {"model": "rank", "input": text(9)}, 200
        yield "/predict", {"model": "rank", "inputs": [[text(4), text(9)]]}, 200
        yield "/tokenize", {"inputs": texts()}, 200
        yield "/detokenize", {"tokens": ids[0]}, 200
        yield "/embed", {"inputs": text(), "model": text(1)}, 404
        yield "/v1/rerank", {**pair, "documents": []}, 400


async def one_round(port: int, count: int, seed: int) -> Counter[str]:
    """Outcomes by status; ``wrong`` behind those that were not expected."""
    outcomes: Counter[str] = Counter()

    async def client(number: int, share: int) -> None:
        made = itertools.islice(requests(seed * NUM_CLIENTS + number), share)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for i, (path, body, status) in enumerate(made):
            packed = i % 7 == 0
            writer.write(encode(path, body, packed=packed))
            if i % 20 == 19:  # leaves without reading
                await writer.drain()
                writer.close()
                outcomes["left"] += 1
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                continue
            found = await answer(reader)
            outcomes[f"{found}" + ("" if found == status else f" for {path}: wrong")] += 1
        writer.close()

    share = count // NUM_CLIENTS
    await asyncio.gather(*(client(number, share) for number in range(NUM_CLIENTS)))
    return outcomes


def encode(path: str, body: dict[str, Any], *, packed: bool) -> bytes:
    content = json.dumps(body).encode()
    if packed:
        content = gzip.compress(content, 1)
    encoding = "Content-Encoding: gzip\r\n" if packed else ""
    return (
        f"POST {path} HTTP/1.1\r\nHost: ivy\r\nContent-Type: application/json\r\n{encoding}"
        f"Content-Length: {len(content)}\r\n\r\n"
    ).encode() + content


async def answer(reader: asyncio.StreamReader) -> int:
    """Status of an answer that was read whole."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    body = json.loads(await reader.readexactly(length))
    for row in body.get("data", []) if isinstance(body, dict) else []:
        if isinstance(row.get("embedding"), str):
            base64.b64decode(row["embedding"], validate=True)
    return int(head[9:12])


if __name__ == "__main__":
    sys.exit(main())
