"""Peak memory of a job on an input larger than it: `python -m bench.bulk_memory --gib 5`.

Writes a JSONL file of that size (rows of 150 bytes of text, 16 KB of another column), embeds
it with a fake engine, so that reading and writing set the pace, in a process of its own, and says
its peak RSS. The files are deleted at the end.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from bench.bulk_ours import peak_rss_mib
from hotbed.bench import rows
from hotbed.bench.texts import mixed_texts
from hotbed.bulk.job import run_job
from hotbed.bulk.local import LocalModel, ModelOptions
from hotbed.bulk.options import JobOptions
from hotbed.bulk.runner import InProcess
from hotbed.core.defaults import DEFAULT_MODEL
from hotbed.core.step import StepResult
from hotbed.tulip.testing import FAKE_INFO, FakeEngine

_DISTINCT = 5000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=5.0, help="size of the input")
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--folder", type=Path, help="where; unset: the temporary folder")
    parser.add_argument("--dedupe", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="hotbed-memory-", dir=arguments.folder))
    try:
        corpus = scratch / "corpus.jsonl"
        num_rows = write_corpus(corpus, int(arguments.gib * (1 << 30)))
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=job,
            args=(corpus, scratch / "out", arguments.dimensions, arguments.dedupe, theirs),
        )
        process.start()
        seconds, idle_mib, rss_mib = ours.recv()
        process.join()
        size = corpus.stat().st_size
    finally:
        shutil.rmtree(scratch)
    measured = rows.row(
        "bulk-memory",
        "hotbed",
        "fake",
        n=num_rows,
        seq_per_s=round(num_rows / seconds, 1),
        peak_mem_mib=rss_mib,
        settings=f"JSONL of {size / (1 << 30):.2f} GiB, {arguments.dimensions} float32 dimensions, "
        f"fake engine{', --dedupe' if arguments.dedupe else ''}; {idle_mib} MiB before the job",
    )
    rows.show("Memory", [measured], ["n", "seq_per_s", "peak_mem_mib", "settings"])
    if arguments.out:
        rows.append(arguments.out, [measured])
    return 0


def write_corpus(path: Path, num_bytes: int) -> int:
    """Rows until the file has that size; how many."""
    texts = mixed_texts(_DISTINCT, max_words=60)
    random = np.random.default_rng(0)
    payloads = [random.bytes(8 << 10).hex() for _ in range(64)]
    num_rows = size = 0
    with path.open("wb") as file:
        while size < num_bytes:
            row = {
                "id": num_rows,
                "text": texts[num_rows % _DISTINCT],
                "payload": payloads[num_rows % 64],
            }
            size += file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
            num_rows += 1
    return num_rows


class ZeroEngine(FakeEngine):
    """Gives rows of zeros: as cheap as can be."""

    def _run(self, call: Any) -> StepResult:
        count = call.batch.num_sequences
        made = np.zeros((count, self.info.dimensions), dtype=np.float32)
        return StepResult([made], np.ones(count, dtype=np.bool_))


def job(corpus: Path, out: Path, dimensions: int, dedupe: bool, pipe: Any) -> None:
    """Embed the corpus and send (seconds, RSS in MiB before, peak after)."""
    model = LocalModel(ModelOptions(model=DEFAULT_MODEL))
    info = dataclasses.replace(FAKE_INFO, dimensions=dimensions)
    backend = model.backend(ZeroEngine(info), 16_384)
    before = peak_rss_mib()
    start = time.perf_counter()
    options = JobOptions(out=out, too_long="truncate", dedupe=dedupe)
    run_job([str(corpus)], options, model.recipe, InProcess(lambda _: (backend, 16_384)))
    pipe.send((time.perf_counter() - start, before, peak_rss_mib()))


if __name__ == "__main__":
    sys.exit(main())
