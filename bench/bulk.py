"""Bulk jobs on a CPU: `python -m bench.bulk [--out FILE]`.

The same texts, in the same arrival order, a slice at a time, go through

- the engine alone: tokenised and sorted before the clock starts, steps of the engine's own size;
- a whole job: read from Parquet, tokenised, computed, written to Parquet, flushed, renamed;
- sentence-transformers' encode and fastembed's embed, in one process and in several.

All systems take turns on each slice, in an order that turns too, so that a busy moment hits all
alike; what is compared are times of the same slice, and the median over the slices is reported.
Engine and job share a process and a loaded model; its peak RSS is reported, and how their CPU times
compare, which other processes hardly touch: what a job adds costs rate only where no core is free.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import peers
from bench.bulk_ours import Ours, peak_rss_mib, ratio
from bench.cpu import MODEL, check, count_tokens
from hotbed.bench import rows
from hotbed.bench.texts import mixed_texts
from hotbed.bulk.local import ModelOptions
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.defaults import DEFAULT_MODEL

OURS = ("engine alone, tokenised and sorted before, fp32", "job, Parquet to Parquet, fp32")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="results file to append to")
    parser.add_argument("--slice", type=int, default=1000, help="texts")
    parser.add_argument("--slices", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "hotbed-onnx")
    parser.add_argument("--no-peers", action="store_true")
    arguments = parser.parse_args()

    folder = load_checkpoint(DEFAULT_MODEL).folder
    threads = arguments.threads
    systems = [
        peers.System("hotbed", OURS[0], functools.partial(ours, folder, threads)),
    ]
    if not arguments.no_peers:
        peers.export_onnx(folder, arguments.cache)
        systems += peers.bulk_systems(folder, threads, arguments.cache)
    running = [peers.Running(system) for system in systems]
    texts = mixed_texts(arguments.slice * arguments.slices)
    cosines = [check(system, running[-1], texts[:64]) for system in running]
    seconds: list[list[float]] = [[] for _ in range(len(running) + 1)]
    rss_mib = 0
    cpu: list[tuple[float, float]] = []
    for number in range(arguments.slices):
        part = texts[number * arguments.slice : (number + 1) * arguments.slice]
        for index in np.roll(np.arange(len(running)), number):
            time.sleep(0.3)  # thread pools of the system before it spin on for a while
            made, whole_s = running[index].embed(part)
            if index:
                seconds[index + 1].append(whole_s)
                continue
            # Ours says itself what belongs to the measurement, in a row after the texts'.
            seconds[0].append(float(made[-1, 0]))
            seconds[1].append(float(made[-1, 1]))
            rss_mib = int(made[-1, 2])
            cpu.append((float(made[-1, 3]), float(made[-1, 4])))
    tokens = count_tokens(texts)
    measured: list[dict[str, Any]] = []
    names = [systems[0], systems[0], *systems[1:]]
    for index, system in enumerate(names):
        extra: dict[str, Any] = {}
        if index == 1:
            extra = {"peak_mem_mib": rss_mib} | ratio(cpu, "cpu_ratio_to_engine")
        measured.append(
            rows.row(
                "bulk",
                system.name,
                MODEL,
                n=len(texts),
                tokens=tokens,
                **rows.percentiles(seconds[index]),
                seq_per_s=round(len(texts) / sum(seconds[index]), 1),
                tokens_per_s=round(tokens / sum(seconds[index])),
                cosine_min=round(cosines[max(0, index - 1)], 6),
                **ratio(list(zip(seconds[0], seconds[index], strict=True))),
                **extra,
                settings=OURS[index] if index < 2 else system.settings,
            )
        )
    columns = ["system", "tokens_per_s", "ratio_to_engine", "cpu_ratio_to_engine"]
    rows.show("Bulk, CPU, all-MiniLM-L6-v2, fp32", measured, [*columns, "settings"])
    if arguments.out:
        rows.append(arguments.out, measured)
    for one in running:
        one.close()
    return 0


def ours(folder: Path, threads: int) -> peers.Embed:
    """Rows of the job, then one with both seconds and the peak RSS in MiB if there are many."""
    scratch = Path(tempfile.mkdtemp(prefix="hotbed-bulk-"))
    model = Ours(ModelOptions(model=str(folder), threads=threads), scratch)
    turn = 0

    def embed(texts: Sequence[str]) -> peers.Rows:
        nonlocal turn
        turn += 1
        if turn % 2:
            alone, job = model.engine_alone(texts), model.job(texts)
        else:
            job, alone = model.job(texts), model.engine_alone(texts)
        if len(texts) <= 64:  # the check
            return job.rows
        figures = np.zeros((1, job.rows.shape[1]), dtype=np.float32)
        figures[0, :5] = alone.seconds, job.seconds, peak_rss_mib(), alone.cpu_s, job.cpu_s
        return np.concatenate([job.rows, figures])

    return embed


if __name__ == "__main__":
    sys.exit(main())
