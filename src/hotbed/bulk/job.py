"""A bulk job: opened or resumed, its parts computed and written, each exactly once.

A part is on the disk whole before the manifest names it. Whenever the job is killed, what the
manifest names is right, and what it does not name is made again, with the same bytes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TextIO

import msgspec

from hotbed import __version__
from hotbed.bulk.durable import locked, remove_temporaries
from hotbed.bulk.manifest import (
    Manifest,
    Part,
    Settings,
    check_same_job,
    check_shares,
    load_manifest,
    manifest_path,
    save_manifest,
)
from hotbed.bulk.options import Format, JobOptions
from hotbed.bulk.parts import part_name, problems_name
from hotbed.bulk.progress import Rates, progress
from hotbed.bulk.read import Corpus, scan
from hotbed.bulk.recipe import Recipe
from hotbed.bulk.report import save_report, summary
from hotbed.bulk.runner import Runner
from hotbed.bulk.sources import STDIN, Source, find_sources, spool_stdin
from hotbed.core.errors import ErrorCode, HotbedError, invalid

_OWN_FILE = re.compile(r"_(manifest|lock|report|problems|stdin|tmp)[-.].*|part-\d{6,}\.parquet")


def run_job(
    inputs: Sequence[str],
    options: JobOptions,
    recipe: Recipe,
    runner: Runner,
    *,
    output: TextIO = sys.stderr,
) -> Manifest:
    """Embed the inputs into `options.out`.

    Args:
        inputs: files, folders, globs, or one ``-``.
        options: of the job.
        recipe: of the vectors.
        runner: makes the parts; started if there is something to do, and closed then.
        output: for progress and the summary.

    Raises:
        HotbedError: INVALID_INPUT naming the input, the row or the option at fault; UNAVAILABLE if
            the folder cannot be written to; CANCELLED if it was interrupted.
    """
    assert options.out is not None, "a job without a folder: this is a bug"
    folder = options.out
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(manifest_path(folder, options.share, "lock")):
            return _open_job(folder, inputs, options, recipe, runner, output=output)
    except OSError as error:  # of inputs it is another error by now
        raise HotbedError(
            ErrorCode.UNAVAILABLE,
            f"--out {folder}: {error.strerror or error}. What was begun there goes on with "
            "--resume once that is mended.",
        ) from error


def _open_job(
    folder: Path,
    inputs: Sequence[str],
    options: JobOptions,
    recipe: Recipe,
    runner: Runner,
    *,
    output: TextIO,
) -> Manifest:
    path = manifest_path(folder, options.share)
    manifest = load_manifest(path)
    spooled = folder / f"_stdin.{_stdin_format(options)}"
    begun = manifest is not None
    if manifest is None:
        corpus = _begin(inputs, options, spooled)
        manifest = Manifest(
            hotbed=__version__,
            finished=False,
            recipe=recipe,
            settings=_settings(options, 0),
            inputs=list(inputs),
            sources=list(corpus.sources),
            source_rows=list(corpus.num_rows),
            columns=corpus.columns.encode(),
            marks=[list(marks) for marks in corpus.marks],
        )
        check_shares(folder, manifest)
    else:
        sources = _sources(inputs, options, spooled, begun=True)
        settings = _settings(options, manifest.settings.step_tokens)
        check_same_job(manifest, recipe=recipe, settings=settings, sources=sources)
        manifest = _check_parts(folder, msgspec.structs.replace(manifest, settings=settings))
        check_shares(folder, manifest)
        if manifest.finished:
            spooled.unlink(missing_ok=True)
            output.write(f"nothing to do: the job is finished\n{summary(folder, manifest, None)}")
            return manifest
        if not options.resume:
            raise invalid(
                f"--out {folder} holds a job that was begun: {len(manifest.parts)} of "
                f"{len(manifest.part_numbers)} parts are done. Go on with --resume, or give "
                "another folder."
            )
    try:
        step_tokens = runner.start(manifest.settings.step_tokens)
        if begun:
            output.write(f"{len(manifest.parts)} parts were done before\n")
        else:
            settings = _settings(options, step_tokens)
            manifest = msgspec.structs.replace(manifest, settings=settings)
            check_shares(folder, manifest)  # others may have begun meanwhile
            save_manifest(path, manifest)
        manifest = _Job(folder, manifest, runner).run(output)
        spooled.unlink(missing_ok=True)
        return manifest
    except KeyboardInterrupt:
        raise HotbedError(
            ErrorCode.CANCELLED, "stopped; --resume goes on after the last finished part"
        ) from None
    finally:
        runner.close()


def _begin(inputs: Sequence[str], options: JobOptions, spooled: Path) -> Corpus:
    assert options.out is not None, "a job without a folder: this is a bug"
    names = sorted(path.name for path in options.out.iterdir())
    begun = any(name.startswith("_manifest") for name in names)
    for name in names:
        if name.startswith("."):
            continue
        if not (_OWN_FILE.fullmatch(name) and (begun or name.startswith("_"))):
            raise invalid(f"--out {options.out} is no folder of vectors: it holds {name}")
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
        return find_sources(inputs, options.format, out=options.out)
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

    def __init__(self, folder: Path, manifest: Manifest, runner: Runner) -> None:
        self._folder = folder
        self._manifest = manifest
        self._runner = runner
        self._path = manifest_path(folder, manifest.settings.shard)

    def run(self, output: TextIO) -> Manifest:
        settings = self._manifest.settings
        todo = self._manifest.todo()
        self._clean(todo)
        total = sum(self._manifest.source_rows)
        per_part = settings.rows_per_part
        rates = Rates(
            sum(min(per_part, total - number * per_part) for number in todo), self._runner.idle_s
        )
        made = self._runner.run(self._folder, self._manifest, todo)
        with progress(rates, output) as report, closing(made):
            for written in made:
                report(written.counts, written.num_rows)
                if written.part is not None:
                    self._record(written.part)
        self._clean(todo, finished=True)  # what workers left that were lost
        self._manifest = msgspec.structs.replace(self._manifest, finished=True)
        save_report(self._folder, self._manifest, rates)
        save_manifest(self._path, self._manifest)  # the last thing: nothing comes after `finished`
        output.write(summary(self._folder, self._manifest, rates))
        return self._manifest

    def _clean(self, todo: Sequence[int], *, finished: bool = False) -> None:
        """Remove what was killed on the way; other shares may be at work in the same folder."""
        of_parts = [name(number) for number in todo for name in (part_name, problems_name)]
        report = manifest_path(self._folder, self._manifest.settings.shard, "report")
        remove_temporaries(self._folder, [*of_parts, self._path.name, report.name])
        for name in of_parts if not finished else ():
            (self._folder / name).unlink(missing_ok=True)

    def _record(self, part: Part) -> None:
        parts = sorted([*self._manifest.parts, part], key=lambda p: p.number)
        self._manifest = msgspec.structs.replace(self._manifest, parts=parts)
        save_manifest(self._path, self._manifest)
