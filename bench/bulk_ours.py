"""The engine alone and whole jobs in one process, on one loaded model, for `bench.bulk*`."""

from __future__ import annotations

import io
import resource
import shutil
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hotbed.bulk.job import run_job
from hotbed.bulk.local import LocalModel, ModelOptions
from hotbed.bulk.options import JobOptions
from hotbed.bulk.runner import InProcess
from hotbed.bulk.steps import STEPS_IN_FLIGHT
from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.text.options import EncodeOptions
from hotbed.text.split import split

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Timed:
    """Rows, and what they took.

    Attributes:
        rows: float32 [texts, dimensions].
        seconds: by the clock.
        cpu_s: of this process's threads in that time; other processes hardly touch it.
    """

    rows: Rows
    seconds: float
    cpu_s: float


class Ours:
    """A model, and a folder for the inputs and outputs of jobs."""

    def __init__(self, options: ModelOptions, scratch: Path) -> None:
        self._model = LocalModel(options)
        self._scratch = scratch
        self._engine = self._model.load()
        self._engine.warm_up()

    def engine_alone(self, texts: Sequence[str]) -> Timed:
        """Tokenised and sorted as a whole before the clock starts."""
        engine = self._engine
        batch = self._model.tokenizer.encode(texts, EncodeOptions(truncate=True)).batch
        order = np.argsort(-batch.lengths, kind="stable")
        budget = engine.default_step_tokens
        steps = [
            (order[a:b], batch.select(order[a:b]))
            for a, b in split(batch.lengths[order], max_tokens=budget, max_sequences=budget)
        ]
        made = np.empty((len(texts), engine.info.dimensions), dtype=np.float32)
        in_flight: deque[tuple[Any, Any]] = deque()

        def collect() -> None:
            rows_of, pending = in_flight.popleft()
            made[rows_of] = pending.wait().rows[0]

        start, cpu = time.perf_counter(), time.process_time()
        for rows_of, step in steps:
            in_flight.append((rows_of, engine.step(step, (OutputSegment(0, len(rows_of), _SPEC),))))
            if len(in_flight) == STEPS_IN_FLIGHT:
                collect()
        while in_flight:
            collect()
        return Timed(made, time.perf_counter() - start, time.process_time() - cpu)

    def job(self, texts: Sequence[str]) -> Timed:
        """From Parquet to Parquet, flushed and renamed."""
        corpus, out = self._scratch / "corpus.parquet", self._scratch / "out"
        pq.write_table(pa.table({"id": range(len(texts)), "text": list(texts)}), corpus)
        shutil.rmtree(out, ignore_errors=True)
        step_tokens = self._engine.default_step_tokens
        backend = self._model.backend(self._engine, step_tokens)
        backend.close = lambda: None  # type: ignore[method-assign]  # the engine is used again
        start, cpu = time.perf_counter(), time.process_time()
        run_job(
            [str(corpus)],
            JobOptions(out=out, too_long="truncate"),
            self._model.recipe,
            InProcess(lambda _: (backend, step_tokens)),
            output=io.StringIO(),
        )
        seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu
        values = pq.read_table(out)["embedding"].combine_chunks().flatten().to_numpy()
        return Timed(values.reshape(len(texts), -1).astype(np.float32), seconds, cpu_s)

    def count_tokens(self, texts: Sequence[str]) -> int:
        """As the model sees them: cut to its limit, with special tokens."""
        return self._model.tokenizer.encode(texts, EncodeOptions(truncate=True)).batch.num_tokens

    def close(self) -> None:
        """Free the model."""
        self._engine.close()


_SPEC = OutputSpec()


def peak_rss_mib() -> int:
    """Of this process, so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def ratio(pairs: Sequence[tuple[float, float]], name: str = "ratio_to_engine") -> dict[str, float]:
    """Median and quartiles of engine/job, of (engine seconds, job seconds) on the same texts."""
    shares = np.array([engine / job for engine, job in pairs])
    low, middle, high = np.percentile(shares, (25, 50, 75))
    return {
        name: round(float(middle), 3),
        f"{name}_low": round(float(low), 3),
        f"{name}_high": round(float(high), 3),
    }
