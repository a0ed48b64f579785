"""A bulk job on a card against the engine alone: `python -m bench.bulk_card`.

The corpus is synthetic from real text: runs of words of a file, short ones (6 to 60 words) and long
ones (150 to 380) mixed. Model: a real shape with seeded random weights. A slice at a time goes
through the engine alone (tokenised and sorted before the clock starts) and through a whole job,
Parquet to Parquet, back to back on the same loaded model. `--one-job ROWS` embeds so many rows as
one job in a process of its own and says that process's peak RSS.

By the engine's rate the default takes an H200 two minutes with the 0.6B shape; a million rows as
one job (`--rows 30000 --one-job 1000000`) seven.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from bench.bulk_ours import Ours, peak_rss_mib, ratio
from bench.full_size import cosines
from hotbed.bench import rows
from hotbed.bench.folders import write_folder
from hotbed.bench.shapes import SHAPES
from hotbed.bench.texts import gensim_data
from hotbed.bulk.command import embed_files
from hotbed.bulk.local import ModelOptions
from hotbed.bulk.options import JobOptions

MIN_COSINE = 0.999
SHORT, LONG = (6, 60), (150, 380)
_ROWS_A_FILE = 100_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, help="unset: one trained on the corpus")
    parser.add_argument("--model", choices=SHAPES, default="pplx-embed-0.6b")
    parser.add_argument("--source", type=Path, help="text file to draw words from; unset: gensim's")
    parser.add_argument("--kernel-dir", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=150_000)
    parser.add_argument("--slices", type=int, default=3)
    parser.add_argument("--long-share", type=float, default=0.5)
    parser.add_argument("--one-job", type=int, default=0, metavar="ROWS")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    arguments = parser.parse_args()
    source = arguments.source or gensim_data("lee_background.cor")
    words = source.read_text(encoding="utf-8").split()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        folder = scratch / "model"
        write_folder(
            SHAPES[arguments.model],
            folder,
            device=torch.device(arguments.device),
            texts=corpus(words, 2000, long_share=0.5, seed=0),
            tokenizer=arguments.tokenizer,
        )
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        options = ModelOptions(
            model=str(folder), device=arguments.device, kernel_dir=arguments.kernel_dir
        )
        facts = {
            "device": torch.cuda.get_device_name()
            if arguments.device != "cpu"
            else rows.cpu_name(),
            "commit": arguments.commit,
        }
        measured = [by_slices(options, words, arguments, scratch, facts)]
        if arguments.one_job:
            measured.append(as_one_job(options, words, arguments, scratch, facts))
    columns = ["n", "tokens_per_s", "ratio_to_engine", "ratio_to_engine_low", "peak_mem_mib"]
    rows.show("Bulk on a card", measured, [*columns, "settings"])
    if arguments.out:
        rows.append(arguments.out, measured)
    return 0


def corpus(words: list[str], num_rows: int, *, long_share: float, seed: int) -> list[str]:
    """Texts of words drawn as runs from `words`; lengths log-uniform in the short or long range."""
    random = np.random.default_rng(seed)
    long = random.random(num_rows) < long_share
    low = np.where(long, LONG[0], SHORT[0])
    high = np.where(long, LONG[1], SHORT[1])
    lengths = np.exp(random.uniform(np.log(low), np.log(high + 1))).astype(int)
    starts = random.integers(0, len(words) - LONG[1], num_rows)
    return [" ".join(words[s : s + n]) for s, n in zip(starts, lengths, strict=True)]


def by_slices(
    options: ModelOptions,
    words: list[str],
    arguments: argparse.Namespace,
    scratch: Path,
    facts: dict[str, Any],
) -> dict[str, Any]:
    ours = Ours(options, scratch)
    size = arguments.rows // arguments.slices
    warm = corpus(words, min(size, 4096), long_share=arguments.long_share, seed=1)
    cosine = float(cosines(ours.engine_alone(warm).rows, ours.job(warm).rows).min())
    if not cosine >= MIN_COSINE:
        sys.exit(f"the job's rows and the engine's differ: cosine {cosine}; nothing was timed")
    pairs: list[tuple[float, float]] = []
    tokens = 0
    for number in range(arguments.slices):
        texts = corpus(words, size, long_share=arguments.long_share, seed=2 + number)
        tokens += ours.count_tokens(texts)
        if number % 2:
            job_s = ours.job(texts).seconds
            pairs.append((ours.engine_alone(texts).seconds, job_s))
        else:
            alone_s = ours.engine_alone(texts).seconds
            pairs.append((alone_s, ours.job(texts).seconds))
        print(f"slice {number}: engine alone {pairs[-1][0]:.2f} s, job {pairs[-1][1]:.2f} s")
    ours.close()
    total = sum(job for _, job in pairs)
    return rows.row(
        "bulk-card",
        "hotbed",
        arguments.model,
        n=size * arguments.slices,
        tokens=tokens,
        seq_per_s=round(size * arguments.slices / total, 1),
        tokens_per_s=round(tokens / total),
        cosine_min=round(cosine, 6),
        **ratio(pairs),
        **facts,
        settings=f"job, Parquet to Parquet, {arguments.slices} slices in turns with the engine "
        f"alone, {arguments.long_share:.0%} long rows",
    )


def as_one_job(
    options: ModelOptions,
    words: list[str],
    arguments: argparse.Namespace,
    scratch: Path,
    facts: dict[str, Any],
) -> dict[str, Any]:
    inputs = scratch / "corpus"
    inputs.mkdir()
    for first in range(0, arguments.one_job, _ROWS_A_FILE):
        count = min(_ROWS_A_FILE, arguments.one_job - first)
        texts = corpus(words, count, long_share=arguments.long_share, seed=1000 + first)
        ids = range(first, first + count)
        pq.write_table(pa.table({"id": ids, "text": texts}), inputs / f"{first:09}.parquet")
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_job, args=(options, inputs, scratch / "whole", theirs))
    process.start()
    seconds, rss_mib = ours.recv()
    process.join()
    return rows.row(
        "bulk-card",
        "hotbed",
        arguments.model,
        n=arguments.one_job,
        seq_per_s=round(arguments.one_job / seconds, 1),
        peak_mem_mib=rss_mib,
        **facts,
        settings="one job in a process of its own, the model's loading included; peak RSS of it",
    )


def _job(options: ModelOptions, inputs: Path, out: Path, pipe: Any) -> None:
    start = time.perf_counter()
    embed_files([str(inputs)], JobOptions(out=out, too_long="truncate"), options)
    pipe.send((time.perf_counter() - start, peak_rss_mib()))


if __name__ == "__main__":
    sys.exit(main())
