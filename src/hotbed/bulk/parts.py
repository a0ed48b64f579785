"""Writes parts: a file each, and a list of the rows that are not embedded as they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hotbed.bulk.backend import Done
from hotbed.bulk.block import Problem
from hotbed.bulk.durable import write_durably
from hotbed.bulk.manifest import Part
from hotbed.bulk.policies import Counts
from hotbed.bulk.write import PartWriter


@dataclass(frozen=True, slots=True)
class Written:
    """A window that is written.

    Attributes:
        counts: what became of its rows.
        num_rows: numbers of rows that it went through.
        part: what it completed; the file is on the disk, under its name.
    """

    counts: Counts
    num_rows: int
    part: Part | None


class PartsWriter:
    """Writes the windows of one part after the other.

    Args:
        folder: where to.
        schema: of the files.
    """

    def __init__(self, folder: Path, schema: Any) -> None:
        self._folder = folder
        self._schema = schema
        self._writer: PartWriter | None = None
        self._counts = Counts()
        self._problems: list[Problem] = []

    def write_all(self, done: Generator[Done, None, None]) -> Generator[Written, None, None]:
        """Write on a thread, one window behind the device.

        What `done` raises is raised after the windows before it; a part that was begun is deleted.
        """
        failed: Exception | None = None
        try:
            with ThreadPoolExecutor(1, thread_name_prefix="write") as pool, closing(done):
                writing: Future[Written] | None = None
                while True:
                    try:
                        window = next(done, None)
                    except Exception as error:
                        window, failed = None, error
                    if writing is not None:
                        yield writing.result()
                    if window is None:
                        break
                    writing = pool.submit(self._write, window)
            if failed is not None:
                raise failed
        except BaseException:
            if self._writer is not None:
                self._writer.discard()
            raise

    def _write(self, done: Done) -> Written:
        number = done.window.part
        if self._writer is None:
            self._writer = PartWriter(self._folder / part_name(number), self._schema)
        self._writer.write(done.table, done.spans, done.rows)
        self._counts.add(done.counts)
        self._problems += done.problems
        part = self._finish(number) if done.window.ends_part else None
        return Written(done.counts, done.window.rows.num_rows, part)

    def _finish(self, number: int) -> Part:
        problems = ""
        if self._problems:
            problems = problems_name(number)
            lines = [msgspec.json.encode(problem) + b"\n" for problem in self._problems]
            write_durably(self._folder / problems, b"".join(lines))
        assert self._writer is not None, "a part without a file: this is a bug"
        sha256, size = self._writer.commit()
        part = Part(
            number=number,
            file=part_name(number),
            sha256=sha256,
            size=size,
            counts=dataclasses.asdict(self._counts),
            problems=problems,
        )
        self._writer, self._counts, self._problems = None, Counts(), []
        return part


def part_name(number: int) -> str:
    """Of a part's file."""
    return f"part-{number:06}.parquet"


def problems_name(number: int) -> str:
    """Of the list of its rows that are not embedded as they are."""
    return f"_problems-{number:06}.jsonl"
