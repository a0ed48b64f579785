"""The systems measured side by side on a CPU, each behind `embed(texts) -> rows`.

Each peer runs in its best documented setting for this machine, named in `settings`. All load the
same weights; the ONNX file is exported from them once and kept in a cache folder.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotbed.bench.adapters.onnx import export_onnx

Rows = NDArray[np.float32]
Embed = Callable[[Sequence[str]], Rows]


@dataclass(frozen=True)
class System:
    """One measured system, in a process of its own: thread pools of two libraries in one process
    get in each other's way.

    Attributes:
        name: package name of the system.
        settings: in words.
        make: called in the process; gives the function that embeds.
    """

    name: str
    settings: str
    make: Callable[[], Embed]


class Running:
    """A system's process, which embeds when told to and says how long it took."""

    def __init__(self, system: System) -> None:
        self.system = system
        context = multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process = context.Process(target=_serve, args=(system.make, child))
        self._process.start()
        child.close()
        self._pipe.recv()

    def embed(self, texts: Sequence[str]) -> tuple[Rows, float]:
        """(rows, seconds)."""
        self._pipe.send(list(texts))
        answer = self._pipe.recv()
        if isinstance(answer, BaseException):
            raise answer
        rows, seconds = answer
        return rows, seconds

    def close(self) -> None:
        self._pipe.send(None)
        self._process.join()


def _serve(make: Callable[[], Embed], pipe: Connection) -> None:
    embed = make()
    pipe.send("ready")
    while (texts := pipe.recv()) is not None:
        start = time.perf_counter()
        try:
            rows = embed(texts)
        except Exception as error:
            pipe.send(error)
        else:
            pipe.send((rows, time.perf_counter() - start))


def systems(folder: Path, threads: int, cache: Path) -> list[System]:
    """All of them; the first is the reference."""
    onnx = f"fp32, {threads} threads"
    return [
        System(
            "sentence-transformers",
            f"encode, batch_size 32 (its default; sorts by length), {onnx}",
            functools.partial(sentence_transformers, folder, threads),
        ),
        System("hotbed", f"Embedder, {onnx}", functools.partial(hotbed, folder, threads)),
        System(
            "onnxruntime",
            f"batches of 32 in arrival order, {onnx}",
            functools.partial(onnxruntime, folder, threads, cache, sort=False),
        ),
        System(
            "onnxruntime",
            f"batches of 32 sorted by length, {onnx}",
            functools.partial(onnxruntime, folder, threads, cache, sort=True),
        ),
        System(
            "fastembed",
            f"embed, batch_size 32, {onnx}",
            functools.partial(fastembed, folder, threads, cache),
        ),
    ]


def bulk_systems(folder: Path, threads: int, cache: Path) -> list[System]:
    """Peers in one process and in their own way over several; the last one is the reference."""
    one, several = f"fp32, {threads} threads", f"fp32, {threads} processes of 1 thread"
    return [
        System(
            "fastembed",
            f"embed, batch_size 32, {one}",
            functools.partial(fastembed, folder, threads, cache),
        ),
        System(
            "fastembed",
            f"embed, batch_size 256, parallel, processes started in each call, {several}",
            functools.partial(fastembed, folder, 1, cache, parallel=threads),
        ),
        System(
            "sentence-transformers",
            f"encode with a pool of processes, batch_size 32, {several}",
            functools.partial(sentence_transformers, folder, 1, processes=threads),
        ),
        System(
            "sentence-transformers",
            f"encode, batch_size 32 (its default; sorts by length), {one}",
            functools.partial(sentence_transformers, folder, threads),
        ),
    ]


def hotbed(folder: Path, threads: int) -> Embed:
    from hotbed import Embedder

    embedder = Embedder(str(folder), num_threads=threads)
    embedder.warm_up()
    return lambda texts: embedder.embed(texts, truncate=True)


def sentence_transformers(folder: Path, threads: int, *, processes: int = 1) -> Embed:
    # Processes of a pool take their number of threads from here.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = SentenceTransformer(str(folder), device="cpu")
    if processes > 1:
        pool = model.start_multi_process_pool(["cpu"] * processes)
        return lambda texts: np.asarray(
            model.encode(list(texts), batch_size=32, pool=pool, show_progress_bar=False)
        )
    return lambda texts: model.encode(list(texts), batch_size=32, show_progress_bar=False)


def onnxruntime(folder: Path, threads: int, cache: Path, *, sort: bool) -> Embed:
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        str(export_onnx(folder, cache) / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()

    def embed(texts: Sequence[str]) -> Rows:
        order = (
            sorted(range(len(texts)), key=lambda i: -len(texts[i])) if sort else range(len(texts))
        )
        rows = np.empty((len(texts), 384), dtype=np.float32)
        indexes = list(order)
        for start in range(0, len(indexes), 32):
            part = indexes[start : start + 32]
            encoded = tokenizer.encode_batch_fast([texts[i] for i in part])
            ids = np.array([e.ids for e in encoded], dtype=np.int64)
            mask = np.array([e.attention_mask for e in encoded], dtype=np.int64)
            feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            (states,) = session.run(None, feeds)
            weights = mask[..., None].astype(np.float32)
            pooled = (states * weights).sum(1) / weights.sum(1)
            rows[part] = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return rows

    return embed


def fastembed(folder: Path, threads: int, cache: Path, *, parallel: int | None = None) -> Embed:
    from fastembed import TextEmbedding

    made = export_onnx(folder, cache)
    model: Any = TextEmbedding(
        "sentence-transformers/all-MiniLM-L6-v2", threads=threads, specific_model_path=str(made)
    )
    # A process is worth its start only for larger batches, of which it takes one at a time.
    batch_size = 32 if parallel is None else 256
    return lambda texts: np.stack(
        list(model.embed(list(texts), batch_size=batch_size, parallel=parallel))
    ).astype(np.float32)
