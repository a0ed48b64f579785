"""The whole service under concurrent clients: `python -m bench.http_load --tokenizer FILE`.

`hotbed serve` on a card, a model in a real shape with seeded random weights behind a real
tokenizer, and clients that ask for one text of a given length each, one after the other: HTTP,
JSON, tokenising, gRPC, batching and the engine. Rows of the service are held to the engine's first.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from bench.full_size import cosines, embed
from hotbed.bench import rows
from hotbed.bench.folders import write_folder
from hotbed.bench.service import any_ended, free_port, wait_until_ready
from hotbed.bench.shapes import SHAPES
from hotbed.checkpoint.load import load_checkpoint
from hotbed.rose.attention.select import AttentionSettings
from hotbed.rose.engine import RoseEngine

MODEL = "pplx-embed-0.6b"
MIN_COSINE = 0.999
_WORDS = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from "
    "or had an they which one you were her all their there been if more when will would who so no "
    "search engine vector index document query water point city river paper method result model"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a tokenizer.json")
    parser.add_argument("--kernel-dir", type=Path)
    parser.add_argument("--tokens", type=int, nargs="*", default=[32, 512])
    parser.add_argument("--concurrency", type=int, nargs="*", default=[1, 2, 4, 8, 16, 64])
    parser.add_argument("--requests", type=int, default=400, help="a concurrency, at least")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    arguments = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
    texts = {n: texts_of(tokenizer, n) for n in arguments.tokens}
    kernels = ["--tulip.kernel-dir", str(arguments.kernel_dir)] if arguments.kernel_dir else []
    port = free_port()
    measured: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cuda = torch.device("cuda")
        write_folder(SHAPES[MODEL], folder, device=cuda, texts=[], tokenizer=arguments.tokenizer)
        torch.cuda.empty_cache()
        expected = engine_rows(folder, tokenizer, texts, arguments.kernel_dir)
        command = [sys.executable, "-m", "hotbed.cli", "serve", str(folder), "--port", str(port)]
        command += ["--workers", str(arguments.workers), "--device", "cuda", *kernels]
        server = subprocess.Popen([*command], start_new_session=True)
        try:
            wait_until_ready(f"http://127.0.0.1:{port}/ready", any_ended([server]))
            for tokens, some in texts.items():
                got = np.stack([ask(connect(port), body_of(text)) for text in some[:4]])
                cosine = float(cosines(got, expected[tokens]).min())
                if not cosine >= MIN_COSINE:
                    sys.exit(f"the service and the engine differ: cosine {cosine}; nothing timed")
                for concurrency in arguments.concurrency:
                    load(port, some, concurrency, 8 * concurrency)
                    count = max(arguments.requests, 20 * concurrency)
                    seconds, wall = load(port, some, concurrency, count)
                    measured.append(
                        rows.row(
                            "http-load",
                            "hotbed",
                            MODEL,
                            n=1,
                            tokens=tokens,
                            concurrency=concurrency,
                            **rows.percentiles(seconds),
                            seq_per_s=round(len(seconds) / wall, 1),
                            tokens_per_s=round(len(seconds) * tokens / wall),
                            cosine_min=round(cosine, 6),
                            device=torch.cuda.get_device_name(),
                            commit=arguments.commit,
                            settings=f"hotbed serve, {arguments.workers} workers, 1 replica, bf16",
                        )
                    )
                    print(measured[-1], flush=True)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
    rows.show("HTTP", measured, ["tokens", "concurrency", "p50_ms", "p99_ms", "seq_per_s"])
    if arguments.out:
        rows.append(arguments.out, measured)
    return 0


def texts_of(tokenizer: Tokenizer, num_tokens: int) -> list[str]:
    """Eight texts of about as many tokens, words drawn with a seed."""
    random = np.random.default_rng(num_tokens)
    texts = []
    for _ in range(8):
        words = list(random.choice(_WORDS.split(), num_tokens))
        while len(tokenizer.encode(" ".join(words)).ids) > num_tokens:
            words.pop()
        texts.append(" ".join(words))
    return texts


def engine_rows(
    folder: Path, tokenizer: Tokenizer, texts: dict[int, list[str]], kernel_dir: Path | None
) -> dict[int, np.ndarray]:
    """Rows of the first four texts of each length, from the engine in this process."""
    attention = AttentionSettings(kernel_dir=kernel_dir)
    engine = RoseEngine.load(load_checkpoint(str(folder)), device="cuda", attention=attention)
    found = {
        tokens: embed(engine, [np.array(tokenizer.encode(t).ids, np.int32) for t in some[:4]])
        for tokens, some in texts.items()
    }
    engine.close()
    del engine
    torch.cuda.empty_cache()
    return found


def body_of(text: str) -> bytes:
    return json.dumps({"input": text, "encoding_format": "base64"}).encode()


def connect(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port)


def ask(connection: http.client.HTTPConnection, body: bytes) -> np.ndarray:
    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != http.HTTPStatus.OK:
        raise RuntimeError(f"{answer.status}: {content[:300]!r}")
    return np.frombuffer(base64.b64decode(json.loads(content)["data"][0]["embedding"]), "<f4")


def load(port: int, texts: list[str], concurrency: int, count: int) -> tuple[list[float], float]:
    """Seconds of each request, and of all; any failure ends the run."""
    bodies = [body_of(text) for text in texts]
    seconds: list[list[float]] = [[] for _ in range(concurrency)]
    failures: list[Exception] = []

    def client(index: int) -> None:
        connection = connect(port)
        try:
            for i in range(count // concurrency):
                start = time.perf_counter()
                ask(connection, bodies[(index + i) % len(bodies)])
                seconds[index].append(time.perf_counter() - start)
        except (OSError, RuntimeError, http.client.HTTPException) as error:
            failures.append(error)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(concurrency)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        sys.exit(f"{len(failures)} clients failed, the first with: {failures[0]}")
    return [s for some in seconds for s in some], time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
