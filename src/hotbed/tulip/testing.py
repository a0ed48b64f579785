"""A complete fake engine for tests and benches: no torch, rows that can be checked by hand.

A row is a hash of its sequence's token ids, so every answer can be compared with its input, alone
or in any batch. `python -m hotbed.tulip.testing --listen ADDRESS` serves it as a process.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np

from hotbed.core.model_info import ModelInfo
from hotbed.core.output import OutputSegment, OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.core.step import EngineDeadError, StepResult
from hotbed.tulip.fake_faults import FaultRates, Faults, OutOfMemoryError
from hotbed.tulip.fake_rows import FAKE_INFO, expected_rows, expected_sets
from hotbed.tulip.process import run_process
from hotbed.tulip.settings import TulipSettings

__all__ = [
    "FAKE_INFO",
    "FakeEngine",
    "FakePending",
    "OutOfMemoryError",
    "expected_rows",
    "expected_sets",
]

_HOLD_LIMIT_S = 60.0


class FakeEngine:
    """Implements `core.step.Engine`: one worker thread runs the steps in the order of the calls.

    A step takes ``step_s + token_s * tokens`` seconds. The attributes and methods below may be
    used from any thread while steps run.

    Attributes:
        poison: token id -> error; a step that holds the token fails with it.
        non_finite: token ids; a sequence that holds one gets a row of NaN.
        leaks_nan: the sequence before such a one gets a row of NaN too, as attention by tiles may
            do; set it before the engine is used.
        idle_work: pieces of work to do while idle.
        num_idle_done: pieces that were done.
        memory_tokens: a step of more tokens fails with `OutOfMemoryError`; None: no limit.
        faults: drawn for every step; None: none.
        steps: (sequences, tokens) of the last 10,000 steps that began, failed ones included.
    """

    def __init__(
        self, info: ModelInfo = FAKE_INFO, *, step_s: float = 0.0, token_s: float = 0.0
    ) -> None:
        self._info = info
        self._step_s, self._token_s = step_s, token_s
        self.poison: dict[int, Exception] = {}
        self.non_finite: set[int] = set()
        self.leaks_nan = False
        self.idle_work = 0
        self.num_idle_done = 0
        self.memory_tokens: int | None = None
        self.faults: Faults | None = None
        self.steps: deque[tuple[int, int]] = deque(maxlen=10_000)
        self.closed = False
        self._failures: deque[Exception] = deque()
        self._dead = False
        self._gate = threading.Event()
        self._gate.set()
        self._num_begun = 0
        self._begun = threading.Condition()
        self._queue: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._worker = threading.Thread(target=self._work, name="fake-engine", daemon=True)
        self._worker.start()

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def default_step_tokens(self) -> int:
        return 2048

    def step(self, batch: RaggedBatch, segments: Sequence[OutputSegment]) -> FakePending:
        if self._dead:
            raise EngineDeadError("the fake engine is dead")
        call = _Call(batch, list(segments), Future())
        self._queue.put(call)
        return FakePending(call.future)

    @property
    def isolates_nan(self) -> bool:
        return not self.leaks_nan

    def idle(self) -> bool:
        if self.num_idle_done < self.idle_work:
            self.num_idle_done += 1
        return self.num_idle_done < self.idle_work

    def counters(self) -> dict[str, int]:
        return {"idle": self.num_idle_done}

    def warm_up(self) -> None:
        """One step of one token, like the first real one."""
        batch = RaggedBatch.from_sequences([[0]])
        self.step(batch, [OutputSegment(0, 1, OutputSpec())]).wait()

    def close(self) -> None:
        if not self.closed:
            self.closed = self._dead = True
            self._gate.set()
            self._queue.put(None)
            self._worker.join(timeout=_HOLD_LIMIT_S)

    def hold(self) -> None:
        """Let no further step finish until `release`."""
        self._gate.clear()

    def release(self) -> None:
        self._gate.set()

    def wait_begun(self, num_steps: int, timeout_s: float = 10.0) -> None:
        """Block until this many steps have begun since the start; TimeoutError after the limit."""
        with self._begun:
            if not self._begun.wait_for(lambda: self._num_begun >= num_steps, timeout_s):
                raise TimeoutError(f"{self._num_begun} of {num_steps} steps begun")

    def fail_next(self, error: Exception) -> None:
        """The next step to begin fails with this error; several calls queue up."""
        self._failures.append(error)

    def die(self) -> None:
        """From now on every step fails with EngineDeadError, also those that wait or are held."""
        self._dead = True
        self._gate.set()

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            with self._begun:
                self._num_begun += 1
                self._begun.notify_all()
            self.steps.append((call.batch.num_sequences, call.batch.num_tokens))
            self._gate.wait(_HOLD_LIMIT_S)
            try:
                result = self._run(call)
            except Exception as error:  # a fake of a device: everything goes to the waiter
                call.future.set_exception(error)
            else:
                call.future.set_result(result)

    def _take_time_or_fail(self, batch: RaggedBatch) -> None:
        if self._dead:
            raise EngineDeadError("the fake engine is dead")
        service_s = self._step_s + self._token_s * batch.num_tokens
        if service_s > 0:
            time.sleep(service_s)
        if self.faults is not None:
            self.faults.before_step(batch.num_sequences)
        if self._failures:
            raise self._failures.popleft()
        if self.memory_tokens is not None and batch.num_tokens > self.memory_tokens:
            raise OutOfMemoryError(f"{batch.num_tokens} tokens do not fit")
        for token_id, error in self.poison.items():
            if bool(np.any(batch.token_ids == token_id)):
                raise error

    def _run(self, call: _Call) -> StepResult:
        batch = call.batch
        self._take_time_or_fail(batch)
        rows, counts = [], []
        for segment in call.segments:
            # A segment counts rows; it begins and ends with a sequence.
            first, last = batch.sequence_of(segment.start), batch.sequence_of(segment.stop - 1)
            made = expected_sets(batch.slice(first, last + 1), segment.spec, info=self._info)
            rows.append(made.rows)
            counts.append(made.counts)
        finite = np.ones(batch.num_rows, dtype=np.bool_)
        if self.non_finite:
            bad = np.isin(batch.token_ids, list(self.non_finite))
            finite = ~np.logical_or.reduceat(bad, batch.cu_seqlens[:-1])
            if self.leaks_nan:
                finite[:-1] &= finite[1:].copy()
            if batch.spans is not None:
                finite = np.repeat(finite, batch.spans.counts)
            for segment, values in zip(call.segments, rows, strict=True):
                if segment.spec.kind == "dense" and values.dtype.kind == "f":
                    values[~finite[segment.start : segment.stop]] = np.nan
        return StepResult(rows, finite, counts)


class FakePending:
    """Implements `core.step.PendingStep`."""

    def __init__(self, future: Future[StepResult]) -> None:
        self._future = future

    def ready(self) -> bool:
        return self._future.done()

    def wait(self) -> StepResult:
        return self._future.result()

    def __await__(self) -> Generator[Any, None, StepResult]:
        # A waiter that is cancelled leaves the step alone.
        return asyncio.shield(asyncio.wrap_future(self._future)).__await__()


class _Call:
    __slots__ = ("batch", "future", "segments")

    def __init__(
        self, batch: RaggedBatch, segments: list[OutputSegment], future: Future[StepResult]
    ) -> None:
        self.batch, self.segments, self.future = batch, segments, future


def main(argv: Sequence[str] | None = None) -> int:
    """Serve a fake model as a process, e.g. to bench a gateway without a model's cost."""
    prog = "python -m hotbed.tulip.testing"
    parser = argparse.ArgumentParser(prog=prog, description=main.__doc__)
    parser.add_argument("--listen", default="127.0.0.1:50051", help="host:port or unix:/path")
    parser.add_argument("--step-ms", type=float, default=0.0, help="time of a step")
    parser.add_argument("--token-us", type=float, default=0.0, help="and of each token in it")
    parser.add_argument("--dimensions", type=int, default=FAKE_INFO.dimensions)
    parser.add_argument("--max-tokens", type=int, default=FAKE_INFO.max_tokens)
    parser.add_argument("--vocab-size", type=int, default=FAKE_INFO.vocab_size)
    parser.add_argument("--name", default=FAKE_INFO.name, help="of the model")
    parser.add_argument("--task", choices=["embed", "score"], default="embed")
    parser.add_argument(
        "--faults", type=FaultRates.parse, default=FaultRates(),
        help="share of steps with each fault, e.g. error=0.01,oom=0.01,stall=0.01,hang=0.001",
    )  # fmt: skip
    parser.add_argument("--step-timeout-s", type=float, default=TulipSettings.step_timeout_s)
    parser.add_argument("--local-stream", action="store_true", help="as of hotbed tulip")
    parser.add_argument("--keepalive-time-s", type=float, default=TulipSettings.keepalive_time_s)
    parser.add_argument("--max-queue-tokens", type=int, default=TulipSettings.max_queue_tokens)
    parser.add_argument("--metrics-port", type=int)
    options = parser.parse_args(argv)
    info = replace(
        FAKE_INFO,
        name=options.name,
        dimensions=options.dimensions,
        max_tokens=options.max_tokens,
        vocab_size=options.vocab_size,
    )
    if options.task == "score":
        info = replace(
            info, task="score", dimensions=1, labels=("LABEL_0",), activation="sigmoid",
            normalize=False, token_types=2,
        )  # fmt: skip

    def load(_: TulipSettings) -> FakeEngine:
        engine = FakeEngine(info, step_s=options.step_ms / 1e3, token_s=options.token_us / 1e6)
        engine.faults = Faults(options.faults)
        return engine

    settings = TulipSettings(
        model=info.name,
        listen=options.listen,
        step_timeout_s=options.step_timeout_s,
        keepalive_time_s=options.keepalive_time_s,
        local_stream=options.local_stream,
        max_queue_tokens=options.max_queue_tokens,
        max_item_tokens=min(TulipSettings.max_item_tokens, options.max_queue_tokens),
        metrics_port=options.metrics_port,
    )
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return run_process(settings, load)


if __name__ == "__main__":
    sys.exit(main())
