"""Who completes a step's future, and that it happens once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from hotbed.core.step import EngineDeadError, StepResult
from hotbed.rose.step_future import StepFuture

RESULT = StepResult([np.ones((1, 2), np.float32)], np.array([True]))


class Rows:
    """Stands for a Readback and its staging's event."""

    def __init__(self, error: Exception | None = None) -> None:
        self.staging, self.event = self, self
        self.happened = threading.Event()
        self.waiters: list[int] = []
        self.num_results = 0
        self._error = error

    def synchronize(self) -> None:
        self.waiters.append(threading.get_ident())
        assert self.happened.wait(10)
        if self._error is not None:
            raise self._error

    def is_there(self) -> bool:
        return self.happened.is_set()

    def result(self) -> StepResult:
        self.num_results += 1
        return RESULT


class Made:
    """A future, what it told others, and how often it gave its staging back."""

    def __init__(self, error: Exception | None = None) -> None:
        self.rows: Any = Rows(error)
        self.watched: list[StepFuture] = []
        self.num_released = 0
        self.future = StepFuture(self.rows, watch=self.watched.append, release=self._release)

    def _release(self) -> None:
        self.num_released += 1


def test_who_blocks_waits_for_the_device_itself() -> None:
    made = Made()
    made.rows.happened.set()
    assert made.future.result() is RESULT
    assert made.rows.waiters == [threading.get_ident()]
    assert made.watched == []
    assert made.num_released == 1


def test_who_asks_to_be_called_does_not_wait() -> None:
    made = Made()
    got: list[StepResult] = []
    made.future.add_done_callback(lambda done: got.append(done.result()))
    assert made.watched == [made.future]
    assert got == []
    made.rows.happened.set()
    made.future.settle()
    assert got == [RESULT]


def test_many_waiters_complete_it_once() -> None:
    made = Made()
    with ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(made.future.result) for _ in range(8)]
        assert not made.future.done()
        made.rows.happened.set()
        assert [w.result(10) for w in waiting] == [RESULT] * 8
    made.future.settle()
    assert made.rows.num_results == made.num_released == 1


def test_it_is_done_as_soon_as_the_device_is() -> None:
    made = Made()
    assert not made.future.done()
    made.rows.happened.set()
    assert made.future.done()


def test_a_lost_device_reaches_every_waiter() -> None:
    made = Made(RuntimeError("an illegal memory access"))
    made.rows.happened.set()
    for _ in range(2):
        with pytest.raises(EngineDeadError, match="illegal"):
            made.future.result()
    assert isinstance(made.future.exception(), EngineDeadError)
    assert made.num_released == 0, "the device may still write there"


def test_a_limit_on_the_wait_is_kept() -> None:
    made = Made()
    with pytest.raises(TimeoutError):
        made.future.result(timeout=0.01)
    assert made.watched == [made.future]
    made.rows.happened.set()
    made.watched[0].settle()
    assert made.future.result(timeout=1) is RESULT


def test_it_cannot_be_cancelled() -> None:
    assert not Made().future.cancel()
