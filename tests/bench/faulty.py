"""Systems for the bench's own tests: one that works, and one for each way of failing.

Rows come from the ids alone, so that every process makes the same ones without a model.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotbed.bench.adapters.protocol import Item, Spec

WIDTH = 16


def row_of(ids: Sequence[int]) -> NDArray[np.float32]:
    random = np.random.default_rng([len(ids), *ids])
    return random.standard_normal(WIDTH).astype(np.float32)


class Working:
    settings = "works"

    def __init__(self, spec: Spec) -> None:
        self.calls = 0

    def prepare(self, items: Sequence[Item]) -> list[list[int]]:
        return [item.ids for item in items]

    def embed(self, prepared: list[list[int]]) -> NDArray[Any]:
        self.calls += 1
        return np.stack([row_of(ids) for ids in prepared])

    def rows(self, result: NDArray[Any]) -> NDArray[Any]:
        return result


class Different(Working):
    """Off by a cosine of 0.98 or 0.99."""

    def rows(self, result: NDArray[Any]) -> NDArray[Any]:
        noise = np.random.default_rng(0).standard_normal(result.shape)
        return result + 0.1 * noise


class DifferentInBatches(Working):
    """As a system that pads wrongly."""

    def embed(self, prepared: list[list[int]]) -> NDArray[Any]:
        rows = super().embed(prepared)
        return rows if len(rows) == 1 else rows[::-1].copy()


class NotFinite(Working):
    def rows(self, result: NDArray[Any]) -> NDArray[Any]:
        return result * np.nan


class FailsToLoad(Working):
    def __init__(self, spec: Spec) -> None:
        print("about to load", flush=True)
        raise RuntimeError("no such kernel")


class EndsWhileLoading(Working):
    def __init__(self, spec: Spec) -> None:
        print("the last words", file=sys.stderr, flush=True)
        os._exit(9)


class _AfterTheCheck(Working):
    """Fails in the first call with more than the check's requests behind it; remembers rows."""

    CHECK_CALLS = 7

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.before: NDArray[Any] | None = None

    def embed(self, prepared: list[list[int]]) -> NDArray[Any]:
        rows = super().embed(prepared)
        given = self.fail(rows) if self.calls > self.CHECK_CALLS else rows
        self.before = rows
        return given

    def fail(self, rows: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError


class Ends(_AfterTheCheck):
    def fail(self, rows: NDArray[Any]) -> NDArray[Any]:
        print("out of memory", file=sys.stderr, flush=True)
        os._exit(7)


class IsKilled(_AfterTheCheck):
    """As by the kernel when memory is short."""

    def fail(self, rows: NDArray[Any]) -> NDArray[Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        return rows


class Hangs(_AfterTheCheck):
    def fail(self, rows: NDArray[Any]) -> NDArray[Any]:
        threading.Event().wait()
        return rows


class TooFew(_AfterTheCheck):
    def fail(self, rows: NDArray[Any]) -> NDArray[Any]:
        return rows[:-1]


class Raises(_AfterTheCheck):
    def fail(self, rows: NDArray[Any]) -> NDArray[Any]:
        raise ValueError("too long for me")


class GivesNaN(_AfterTheCheck):
    def fail(self, rows: NDArray[Any]) -> NDArray[Any]:
        rows[-1, 3] = np.nan
        return rows


class SwapsTwoRows(_AfterTheCheck):
    """Of requests with several; those with one are right."""

    def fail(self, rows: NDArray[Any]) -> NDArray[Any]:
        rows[[0, -1]] = rows[[-1, 0]]
        return rows


class GivesRowsOfTheRequestBefore(_AfterTheCheck):
    def fail(self, rows: NDArray[Any]) -> NDArray[Any]:
        before = self.before
        return before if before is not None and before.shape == rows.shape else rows


class IsWrongOnce(_AfterTheCheck):
    """In one of many calls, in the last cell's time too: every row is looked at."""

    def fail(self, rows: NDArray[Any]) -> NDArray[Any]:
        return -rows if self.calls % 5 == 0 else rows


class Sleeps(_AfterTheCheck):
    """Slow, and right."""

    def fail(self, rows: NDArray[Any]) -> NDArray[Any]:
        threading.Event().wait(0.2)
        return rows
