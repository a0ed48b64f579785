"""What a bulk job can be told on the command line. Imports nothing heavy: `--help` reads it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Format = Literal["auto", "parquet", "arrow", "jsonl", "csv", "tsv", "lines", "text"]
TooLong = Literal["fail", "truncate", "chunk", "skip"]
Bad = Literal["fail", "skip"]
ROWS_PER_PART = 65_536


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """How `hotbed embed --out` reads, writes and resumes.

    Attributes:
        out: folder to write Parquet files to; what is given by position are then inputs: files,
            folders, globs, or - for standard input.
        text: column that is embedded.
        format: of the inputs; auto goes by their names. lines: each line is a text; text: each
            file is one.
        keep: input columns to keep (again for each); unset: all.
        vector_column: name of the column with the vectors.
        too_long: what becomes of texts over the model's limit; chunk makes a row of each part.
        bad: what becomes of rows that are empty or broken; skip lists them in the report.
        shard: i/n, from 0/n to n-1/n: do only this one of n shares, on as many machines.
        resume: go on with the job that was begun in --out.
        dedupe: compute texts that occur several times in a part only once.
        rows_per_part: input rows of an output file; the unit of resuming and of sharding.
        engine: local: this process computes. ray: workers on a Ray cluster do, one a GPU.
        address: of the Ray cluster, host:port or auto; unset: RAY_ADDRESS, else a cluster that runs
            on this machine, else a new one of this machine alone.
        workers: on the Ray cluster; unset: as many as it has GPUs, or without GPUs as many as its
            CPUs take, each with --threads.
        endpoint: base URL of a running Hotbed that computes instead of this process.
        concurrency: requests to the endpoint at a time.
    """

    out: Path | None = None
    text: str = "text"
    format: Format = "auto"
    keep: tuple[str, ...] = ()
    vector_column: str = "embedding"
    too_long: TooLong = "fail"
    bad: Bad = "fail"
    shard: str | None = None
    resume: bool = False
    dedupe: bool = False
    rows_per_part: int = ROWS_PER_PART
    engine: Literal["local", "ray"] = "local"
    address: str | None = None
    workers: int | None = None
    endpoint: str | None = None
    concurrency: int = 8

    def __post_init__(self) -> None:
        if self.rows_per_part < 1:
            raise ValueError(f"--rows-per-part must be at least 1, got {self.rows_per_part}")
        if self.concurrency < 1:
            raise ValueError(f"--concurrency must be at least 1, got {self.concurrency}")
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"--workers must be at least 1, got {self.workers}")
        if self.engine != "ray" and (self.address is not None or self.workers is not None):
            raise ValueError("--address and --workers are for --engine ray")
        if self.engine == "ray" and self.endpoint is not None:
            raise ValueError("--engine ray and --endpoint exclude each other")
        if self.endpoint is not None and (self.too_long == "chunk" or self.dedupe):
            raise ValueError("--too-long chunk and --dedupe do not go with --endpoint")
        if not self.vector_column:
            raise ValueError("--vector-column must not be empty")
        if self.vector_column in self.keep:
            raise ValueError(f"--keep and --vector-column both name {self.vector_column!r}")
        self.share  # noqa: B018  # refuses what it cannot read
        if self.out is None:
            for field in dataclasses.fields(self):
                if getattr(self, field.name) != field.default:
                    option = field.name.replace("_", "-")
                    raise ValueError(f"--{option} is for jobs that write a folder: give --out too")

    @property
    def share(self) -> tuple[int, int]:
        """(i, n) of `shard`; (0, 1) without one."""
        if self.shard is None:
            return 0, 1
        first, slash, second = self.shard.partition("/")
        if not (slash and first.isdecimal() and second.isdecimal()):
            raise ValueError(f"--shard must be i/n such as 0/4, got {self.shard!r}")
        i, n = int(first), int(second)
        if not i < n:
            raise ValueError(f"--shard {self.shard}: i goes from 0 to n - 1 = {n - 1}")
        return i, n
