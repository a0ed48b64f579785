"""What Ray costs a bulk job: `python -m bench.bulk_ray`.

The same job of the default model, in this process and with `--engine ray` on one worker of as many
threads, in turns. The time is that from the first part asked for to the last one listed, models
loaded: what a job of many parts repeats.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray

from bench.cpu import MODEL
from hotbed.bench import rows
from hotbed.bench.texts import mixed_texts
from hotbed.bulk.command import embed_files
from hotbed.bulk.local import ModelOptions
from hotbed.bulk.options import JobOptions
from hotbed.core.defaults import DEFAULT_MODEL


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="results file to append to")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--rows-per-part", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="hotbed-ray-"))
    seconds: dict[str, list[float]] = {"local": [], "ray": []}
    ray.init(num_cpus=arguments.threads, include_dashboard=False, log_to_driver=False)
    try:
        corpus = scratch / "corpus.parquet"
        texts = mixed_texts(arguments.texts)
        pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), corpus)
        for number in range(arguments.rounds):
            for engine in ("local", "ray") if number % 2 else ("ray", "local"):
                out = scratch / "out"
                shutil.rmtree(out, ignore_errors=True)
                settings: Any = {"engine": engine, "rows_per_part": arguments.rows_per_part}
                embed_files(
                    [str(corpus)],
                    JobOptions(out=out, too_long="truncate", **settings),
                    ModelOptions(model=DEFAULT_MODEL, threads=arguments.threads),
                    output=io.StringIO(),
                )
                report = json.loads((out / "_report.json").read_text())
                seconds[engine].append(report["last_run"]["seconds"])
                print(engine, seconds[engine][-1], flush=True)
    finally:
        ray.shutdown()
        shutil.rmtree(scratch)
    shares = np.array(seconds["ray"]) / np.array(seconds["local"])
    low, middle, high = np.percentile(shares, (25, 50, 75))
    measured = rows.row(
        "bulk-ray",
        "hotbed",
        MODEL,
        n=arguments.texts,
        **rows.percentiles(seconds["ray"]),
        ratio_to_local=round(float(middle), 3),
        ratio_low=round(float(low), 3),
        ratio_high=round(float(high), 3),
        settings=f"1 Ray worker and a local job of {arguments.threads} threads in turns, parts of "
        f"{arguments.rows_per_part} rows, Ray {ray.__version__}",
    )
    rows.show("Ray", [measured], ["n", "ratio_low", "ratio_to_local", "ratio_high", "settings"])
    if arguments.out:
        rows.append(arguments.out, [measured])
    return 0


if __name__ == "__main__":
    sys.exit(main())
