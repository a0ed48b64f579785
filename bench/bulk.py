"""Bulk jobs on a CPU: `python -m bench.bulk [--out FILE]`.

The same texts, in the same arrival order, go through

- the engine alone: tokenised and sorted before the clock starts, steps of the engine's own size;
- a whole job: read from Parquet, tokenised, computed, written to Parquet, flushed, renamed;
- sentence-transformers' encode and fastembed's embed, each in a process of its own.

Rounds take turns, so that a busy moment hits all alike; medians are reported. The job's peak RSS is
that of its process, which holds the model and nothing of the peers.
"""

from __future__ import annotations

import argparse
import functools
import io
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import peers
from bench.cpu import MODEL, check, count_tokens
from hotbed.bench import rows
from hotbed.bench.texts import mixed_texts
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.defaults import DEFAULT_MODEL

PEERS = ("sentence-transformers", "fastembed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="results file to append to")
    parser.add_argument("--texts", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "hotbed-onnx")
    arguments = parser.parse_args()

    folder = load_checkpoint(DEFAULT_MODEL).folder
    peers.export_onnx(folder, arguments.cache)
    others = [
        peers.Running(system)
        for system in peers.systems(folder, arguments.threads, arguments.cache)
        if system.name in PEERS
    ]
    ours = [
        peers.Running(
            peers.System("hotbed", words, functools.partial(make, folder, arguments.threads))
        )
        for words, make in (
            ("engine alone, tokenised and sorted before, fp32", engine_alone),
            ("job, Parquet to Parquet, fp32", job),
        )
    ]
    texts = mixed_texts(arguments.texts)
    tokens = count_tokens(texts)
    systems = ours + others
    cosines = [check(running, others[0], texts[:64]) for running in systems]
    seconds: list[list[float]] = [[] for _ in systems]
    rss_mib = 0
    for _ in range(arguments.rounds):
        for index, running in enumerate(systems):
            # Thread pools of the system before it spin on for a while.
            time.sleep(0.3)
            made, whole_s = running.embed(texts)
            # Ours say themselves what belongs to the measurement, in a row after the texts'.
            own = made[len(texts) :]
            seconds[index].append(float(own[0, 0]) if len(own) else whole_s)
            if running is ours[1]:
                rss_mib = int(own[0, 1])
    medians = [float(np.median(s)) for s in seconds]
    measured: list[dict[str, Any]] = []
    for index, running in enumerate(systems):
        extra: dict[str, Any] = {"peak_mem_mib": rss_mib} if running is ours[1] else {}
        measured.append(
            rows.row(
                "bulk",
                running.system.name,
                MODEL,
                n=len(texts),
                tokens=tokens,
                **rows.percentiles(seconds[index]),
                seq_per_s=round(len(texts) / medians[index], 1),
                tokens_per_s=round(tokens / medians[index]),
                cosine_min=round(cosines[index], 6),
                ratio_to_engine=round(medians[0] / medians[index], 3),
                **extra,
                settings=running.system.settings,
            )
        )
    columns = ["system", "n", "tokens", "tokens_per_s", "ratio_to_engine", "peak_mem_mib"]
    rows.show("Bulk, CPU, all-MiniLM-L6-v2, fp32", measured, [*columns, "settings"])
    if arguments.out:
        rows.append(arguments.out, measured)
    for running in systems:
        running.close()
    return 0


def _with_figures(made: peers.Rows, seconds: float) -> peers.Rows:
    """The rows, and one more with seconds and the process's peak RSS in MiB."""
    figures = np.zeros((1, made.shape[1]), dtype=np.float32)
    figures[0, :2] = seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return np.concatenate([made, figures])


def _measured(embed: Callable[[Sequence[str]], tuple[peers.Rows, float]]) -> peers.Embed:
    def call(texts: Sequence[str]) -> peers.Rows:
        made, seconds = embed(texts)
        # The check of a few texts wants nothing but rows.
        return made if len(texts) <= 64 else _with_figures(made, seconds)

    return call


def engine_alone(folder: Path, threads: int) -> peers.Embed:
    from hotbed.bulk.local import LocalModel, ModelOptions
    from hotbed.bulk.steps import STEPS_IN_FLIGHT
    from hotbed.core.output import OutputSegment, OutputSpec
    from hotbed.text.options import EncodeOptions
    from hotbed.text.split import split

    model = LocalModel(ModelOptions(model=str(folder), threads=threads))
    engine = model.load()
    engine.warm_up()

    def embed(texts: Sequence[str]) -> tuple[peers.Rows, float]:
        batch = model.tokenizer.encode(texts, EncodeOptions(truncate=True)).batch
        order = np.argsort(-batch.lengths, kind="stable")
        budget = engine.default_step_tokens
        steps = [
            (order[a:b], batch.select(order[a:b]))
            for a, b in split(batch.lengths[order], max_tokens=budget, max_sequences=budget)
        ]
        made = np.empty((len(texts), engine.info.dimensions), dtype=np.float32)
        start = time.perf_counter()
        pending: list[Any] = []
        for rows_of, step in steps:
            segment = OutputSegment(0, len(rows_of), OutputSpec())
            pending.append((rows_of, engine.step(step, (segment,))))
            if len(pending) == STEPS_IN_FLIGHT:
                done_of, done = pending.pop(0)
                made[done_of] = done.wait().rows[0]
        for done_of, done in pending:
            made[done_of] = done.wait().rows[0]
        return made, time.perf_counter() - start

    return _measured(embed)


def job(folder: Path, threads: int) -> peers.Embed:
    from hotbed.bulk.job import run_job
    from hotbed.bulk.local import LocalModel, ModelOptions
    from hotbed.bulk.options import JobOptions
    from hotbed.bulk.runner import InProcess

    model = LocalModel(ModelOptions(model=str(folder), threads=threads))
    engine = model.load()
    engine.warm_up()

    def embed(texts: Sequence[str]) -> tuple[peers.Rows, float]:
        scratch = Path(tempfile.mkdtemp(prefix="hotbed-bulk-"))
        try:
            corpus = scratch / "corpus.parquet"
            pq.write_table(pa.table({"id": range(len(texts)), "text": list(texts)}), corpus)
            step_tokens = engine.default_step_tokens
            start = time.perf_counter()
            backend = model.backend(engine, step_tokens)
            backend.close = lambda: None  # type: ignore[method-assign]  # it is used again
            run_job(
                [str(corpus)],
                JobOptions(out=scratch / "out", too_long="truncate"),
                model.recipe,
                InProcess(lambda _: (backend, step_tokens)),
                output=io.StringIO(),
            )
            seconds = time.perf_counter() - start
            values = pq.read_table(scratch / "out")["embedding"].combine_chunks().flatten()
            made = values.to_numpy().reshape(len(texts), -1).astype(np.float32)
            return made, seconds
        finally:
            shutil.rmtree(scratch)

    return _measured(embed)


if __name__ == "__main__":
    sys.exit(main())
