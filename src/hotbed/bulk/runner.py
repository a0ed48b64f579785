"""Who makes the parts of a job: this process, or others that are told to."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from hotbed.bulk.backend import Backend
from hotbed.bulk.columns import Columns
from hotbed.bulk.manifest import Manifest
from hotbed.bulk.parts import PartsWriter, Written
from hotbed.bulk.policies import Policies
from hotbed.bulk.read import Corpus, Window, windows
from hotbed.bulk.write import CHUNK_COLUMNS, output_schema
from hotbed.core.errors import invalid

Load = Callable[[int], tuple[Backend, int]]
"""From the step size in tokens that the job was begun with (0: choose one) to what computes, and
its step size."""


class Runner(Protocol):
    """Makes parts."""

    def start(self, step_tokens: int) -> int:
        """Load the model. The step size in tokens: `step_tokens`, or if that is 0 what suits it."""
        ...

    def run(
        self, folder: Path, job: Manifest, numbers: Iterable[int]
    ) -> Generator[Written, None, None]:
        """Make parts in the folder; after `start`.

        Args:
            folder: of the job.
            job: what it is; its list of finished parts does not matter.
            numbers: of the parts, rising; may be still unknown when the first is made.

        Where the generator is closed early, the part at hand is deleted.

        Raises:
            HotbedError: naming the row that a policy says to fail on, or what else went wrong.
        """
        ...

    def idle_s(self) -> float | None:
        """Seconds in which the device had nothing to do, on average; None: not known."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


class InProcess:
    """Implements `Runner`."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._backend: Backend | None = None

    def start(self, step_tokens: int) -> int:
        """See `Runner`."""
        self._backend, step_tokens = self._load(step_tokens)
        return step_tokens

    def run(
        self, folder: Path, job: Manifest, numbers: Iterable[int]
    ) -> Generator[Written, None, None]:
        """See `Runner`."""
        assert self._backend is not None, "run without start: this is a bug"
        settings = job.settings
        corpus = Corpus(job.sources, job.source_rows, Columns.decode(job.columns), job.marks)
        writer = PartsWriter(folder, _schema(job, corpus, self._backend))
        policies = Policies(settings.too_long, settings.bad, corpus.place)
        done = self._backend.run(
            _windows(corpus, numbers, settings.rows_per_part),
            policies,
            text=settings.text,
            dedupe=settings.dedupe,
        )
        yield from writer.write_all(done)

    def idle_s(self) -> float | None:
        """See `Runner`."""
        return None if self._backend is None else self._backend.idle_s()

    def close(self) -> None:
        """See `Runner`."""
        if self._backend is not None:
            self._backend.close()


def _windows(corpus: Corpus, numbers: Iterable[int], rows_per_part: int) -> Iterator[Window]:
    """Of parts that are known at once those of all, so that files are opened once."""
    if isinstance(numbers, list):
        yield from windows(corpus, numbers, rows_per_part)
        return
    for number in numbers:
        yield from windows(corpus, [number], rows_per_part)


def _schema(job: Manifest, corpus: Corpus, backend: Backend) -> object:
    chunks = job.settings.too_long == "chunk"
    if chunks and (taken := set(CHUNK_COLUMNS) & set(corpus.columns.schema.names)):
        raise invalid(f"the inputs have a column {min(taken)!r}, which --too-long chunk writes")
    return output_schema(
        corpus.columns.schema,
        job.recipe,
        backend.row_dtype,
        backend.row_width,
        name=job.settings.vector_column,
        chunks=chunks,
    )
