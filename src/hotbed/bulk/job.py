"""A bulk job: opened or resumed, its parts computed and written, each exactly once.

A part is on the disk whole before the manifest names it. Whenever the job is killed, what the
manifest names is right, and what it does not name is made again, with the same bytes.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

import msgspec

from hotbed import __version__
from hotbed.bulk.backend import Backend, Done
from hotbed.bulk.block import Problem
from hotbed.bulk.columns import Columns
from hotbed.bulk.durable import TEMPORARY_PREFIX, locked, write_durably
from hotbed.bulk.manifest import (
    Manifest,
    Part,
    Settings,
    check_same_job,
    load_manifest,
    manifest_path,
    save_manifest,
)
from hotbed.bulk.options import Format, JobOptions
from hotbed.bulk.policies import Counts, Policies
from hotbed.bulk.progress import Rates, Report, progress
from hotbed.bulk.read import Corpus, scan, windows
from hotbed.bulk.recipe import Recipe
from hotbed.bulk.report import save_report, summary
from hotbed.bulk.sources import STDIN, Source, find_sources, spool_stdin
from hotbed.bulk.write import CHUNK_COLUMNS, PartWriter, output_schema
from hotbed.core.errors import ErrorCode, HotbedError, invalid

MakeBackend = Callable[[int], tuple[Backend, int]]
"""From the step size in tokens that the job was begun with (0: choose one) to what computes, and
its step size."""


def run_job(
    inputs: Sequence[str],
    options: JobOptions,
    recipe: Recipe,
    make_backend: MakeBackend,
    *,
    output: TextIO = sys.stderr,
) -> Manifest:
    """Embed the inputs into `options.out`.

    Args:
        inputs: files, folders, globs, or one ``-``.
        options: of the job.
        recipe: of the vectors.
        make_backend: called if there is something to do.
        output: for progress and the summary.

    Raises:
        HotbedError: INVALID_INPUT naming the input, the row or the option at fault.
    """
    assert options.out is not None, "a job without a folder: this is a bug"
    folder = options.out
    folder.mkdir(parents=True, exist_ok=True)
    path = manifest_path(folder, options.share)
    with locked(manifest_path(folder, options.share, "lock")):
        manifest = load_manifest(path)
        spooled = folder / f"_stdin.{_stdin_format(options)}"
        if manifest is None:
            corpus = _begin(inputs, options, spooled)
            new = True
        else:
            sources = _sources(inputs, options, spooled, begun=True)
            settings = _settings(options, manifest.settings.step_tokens)
            check_same_job(manifest, recipe=recipe, settings=settings, sources=sources)
            manifest = _check_parts(folder, msgspec.structs.replace(manifest, settings=settings))
            if manifest.finished:
                spooled.unlink(missing_ok=True)
                output.write(
                    f"nothing to do: the job is finished\n{summary(folder, manifest, None)}"
                )
                return manifest
            if not options.resume:
                raise invalid(
                    f"--out {folder} holds a job that was begun: {len(manifest.parts)} of "
                    f"{len(manifest.part_numbers)} parts are done. Go on with --resume, or give "
                    "another folder."
                )
            corpus = Corpus(
                manifest.sources, manifest.source_rows, Columns.decode(manifest.columns)
            )
            new = False
        begun_with = 0 if manifest is None else manifest.settings.step_tokens
        backend, step_tokens = make_backend(begun_with)
        try:
            if manifest is None:
                manifest = Manifest(
                    hotbed=__version__,
                    finished=False,
                    recipe=recipe,
                    settings=_settings(options, step_tokens),
                    inputs=list(inputs),
                    sources=list(corpus.sources),
                    source_rows=list(corpus.num_rows),
                    columns=corpus.columns.encode(),
                )
                save_manifest(path, manifest)
            if not new:
                output.write(f"{len(manifest.parts)} parts were done before\n")
            manifest = _Job(folder, manifest, corpus, backend).run(output)
            spooled.unlink(missing_ok=True)
            return manifest
        except KeyboardInterrupt:
            raise HotbedError(
                ErrorCode.CANCELLED, "stopped; --resume goes on after the last finished part"
            ) from None
        finally:
            backend.close()


def _begin(inputs: Sequence[str], options: JobOptions, spooled: Path) -> Corpus:
    assert options.out is not None, "a job without a folder: this is a bug"
    strangers = [p.name for p in options.out.iterdir() if not p.name.startswith(("_", "part-"))]
    if strangers:
        raise invalid(f"--out {options.out} is no folder of vectors: it holds {strangers[0]}")
    if list(inputs) == [STDIN]:
        if options.share != (0, 1):
            raise invalid("standard input cannot be shared: --shard needs files")
        spool_stdin(spooled)
    sources = _sources(inputs, options, spooled, begun=False)
    assert sources is not None, "a new job without sources: this is a bug"
    return scan(sources, options.text, keep=options.keep, vector_column=options.vector_column)


def _sources(
    inputs: Sequence[str], options: JobOptions, spooled: Path, *, begun: bool
) -> list[Source] | None:
    """The inputs as they are now; None: they were read from standard input and are kept."""
    if list(inputs) != [STDIN]:
        return find_sources(inputs, options.format)
    if begun:
        return None
    return [Source.of(str(spooled), _stdin_format(options))]


def _stdin_format(options: JobOptions) -> Format:
    return "lines" if options.format == "auto" else options.format


def _settings(options: JobOptions, step_tokens: int) -> Settings:
    return Settings(
        text=options.text,
        keep=options.keep,
        vector_column=options.vector_column,
        too_long=options.too_long,
        bad=options.bad,
        shard=options.share,
        dedupe=options.dedupe,
        rows_per_part=options.rows_per_part,
        step_tokens=step_tokens,
        endpoint=options.endpoint is not None,
    )


def _check_parts(folder: Path, manifest: Manifest) -> Manifest:
    """Without the parts whose files are gone or have another size: they are made again."""
    whole = [
        part for part in manifest.parts if not part.file or _size(folder / part.file) == part.size
    ]
    if len(whole) == len(manifest.parts):
        return manifest
    return msgspec.structs.replace(manifest, parts=whole, finished=False)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else -1


class _Job:
    """One run over the parts that are not done."""

    def __init__(self, folder: Path, manifest: Manifest, corpus: Corpus, backend: Backend) -> None:
        self._folder = folder
        self._manifest = manifest
        self._corpus = corpus
        self._backend = backend
        self._path = manifest_path(folder, manifest.settings.shard)
        settings = manifest.settings
        chunks = settings.too_long == "chunk"
        if chunks and (taken := set(CHUNK_COLUMNS) & set(corpus.columns.schema.names)):
            raise invalid(f"the inputs have a column {min(taken)!r}, which --too-long chunk writes")
        self._schema = output_schema(
            corpus.columns.schema,
            manifest.recipe,
            backend.row_dtype,
            backend.row_width,
            name=settings.vector_column,
            chunks=chunks,
        )
        self._writer: PartWriter | None = None
        self._counts = Counts()
        self._problems: list[Problem] = []

    def run(self, output: TextIO) -> Manifest:
        settings = self._manifest.settings
        todo = self._manifest.todo()
        self._clean(todo)
        total = self._corpus.total_rows
        per_part = settings.rows_per_part
        rates = Rates(
            sum(min(per_part, total - number * per_part) for number in todo), self._backend.idle_s
        )
        policies = Policies(settings.too_long, settings.bad, self._corpus.place)  # type: ignore[arg-type]
        read = windows(self._corpus, todo, per_part)
        done = self._backend.run(read, policies, text=settings.text, dedupe=settings.dedupe)
        with progress(rates, output) as report:
            try:
                self._write_all(done, report)
            except BaseException:
                if self._writer is not None:
                    self._writer.discard()
                raise
        self._manifest = msgspec.structs.replace(self._manifest, finished=True)
        save_report(self._folder, self._manifest, rates)
        save_manifest(self._path, self._manifest)  # the last thing: nothing comes after `finished`
        output.write(summary(self._folder, self._manifest, rates))
        return self._manifest

    def _clean(self, todo: Sequence[int]) -> None:
        """Remove what a killed run left; other shares may be at work in the same folder."""
        for number in todo:
            for name in (_part_name(number), _problems_name(number)):
                (self._folder / (TEMPORARY_PREFIX + name)).unlink(missing_ok=True)
                (self._folder / name).unlink(missing_ok=True)

    def _write_all(self, done: Iterator[Done], report: Report) -> None:
        """Write on a thread, one window behind the device."""
        with ThreadPoolExecutor(1, thread_name_prefix="write") as pool:
            writing: Future[None] | None = None
            try:
                for window in done:
                    if writing is not None:
                        writing.result()
                    writing = pool.submit(self._write, window)
                    report(window.counts, window.window.rows.num_rows)
                if writing is not None:
                    writing.result()
            finally:
                done.close()  # type: ignore[attr-defined]  # a generator: ends its threads

    def _write(self, done: Done) -> None:
        number = done.window.part
        if self._writer is None:
            self._writer = PartWriter(self._folder / _part_name(number), self._schema)
        self._writer.write(done.table, done.spans, done.rows)
        self._counts.add(done.counts)
        self._problems += done.problems
        if done.window.ends_part:
            self._finish_part(number)

    def _finish_part(self, number: int) -> None:
        problems = ""
        if self._problems:
            problems = _problems_name(number)
            lines = [msgspec.json.encode(problem) + b"\n" for problem in self._problems]
            write_durably(self._folder / problems, b"".join(lines))
        assert self._writer is not None, "a part without a file: this is a bug"
        sha256, size = self._writer.commit()
        part = Part(
            number=number,
            file=_part_name(number),
            sha256=sha256,
            size=size,
            counts=dataclasses.asdict(self._counts),
            problems=problems,
        )
        parts = sorted([*self._manifest.parts, part], key=lambda p: p.number)
        self._manifest = msgspec.structs.replace(self._manifest, parts=parts)
        save_manifest(self._path, self._manifest)
        self._writer, self._counts, self._problems = None, Counts(), []


def _part_name(number: int) -> str:
    return f"part-{number:06}.parquet"


def _problems_name(number: int) -> str:
    return f"_problems-{number:06}.jsonl"
