"""Pinned host memory of the steps in flight: inputs on their way in, rows on their way out.

A step takes one piece of it and gives it back once its rows have been copied out, so a piece and
its event are used again and again and nothing is allocated for a step. How many there are follows
from how many steps are in flight at most.
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

# Kept for later; more than these exist only while more steps are in flight.
_MAX_FREE = 8
_MIN_INTS = 1 << 14
_MAX_VIEWS = 256
# Inputs and rows begin at their own cache lines.
_ALIGN_INTS = 16


def aligned(num_ints: int) -> int:
    """`num_ints` rounded up to a whole cache line."""
    return -(-num_ints // _ALIGN_INTS) * _ALIGN_INTS


class Staging:
    """One piece: int32 memory and the event behind the step that uses it.

    Attributes:
        tensor: int32 [capacity], pinned where there is a CUDA device.
        array: the same memory for NumPy.
        event: recorded behind the last copy of the step; made with the first one.
    """

    __slots__ = ("_views", "array", "event", "tensor")

    def __init__(self, capacity: int, *, pinned: bool) -> None:
        # A normal tensor whatever the caller's mode: it is written to outside inference mode.
        with torch.inference_mode(False):
            self.tensor = torch.empty(capacity, dtype=torch.int32, pin_memory=pinned)
        self.array = self.tensor.numpy()
        self.event: torch.cuda.Event | None = None
        self._views: dict[int, Tensor] = {}

    def first(self, num_ints: int) -> Tensor:
        """Its first elements. Kept: a view costs more than the rest of a copy's enqueueing."""
        view = self._views.get(num_ints)
        if view is None:
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()
            view = self._views[num_ints] = self.tensor.narrow(0, 0, num_ints)
        return view


class StagingPool:
    """Hands out pieces to the submitting thread and takes them back from the waiting one.

    Args:
        pinned: whether the memory is page-locked, which needs a CUDA device.
    """

    def __init__(self, *, pinned: bool) -> None:
        self._pinned = pinned
        self._free: list[Staging] = []
        self._lock = threading.Lock()

    def take(self, num_ints: int) -> Staging:
        """A piece of at least `num_ints`, the one that was used last if it is large enough."""
        with self._lock:
            staging = self._free.pop() if self._free else None
        if staging is None or len(staging.array) < num_ints:
            # A smaller one goes; torch frees pinned memory only when copies from it are done.
            capacity = max(_MIN_INTS, 1 << (num_ints - 1).bit_length())
            staging = Staging(capacity, pinned=self._pinned)
        return staging

    def give_back(self, staging: Staging) -> None:
        """Its step is done and its rows are copied."""
        with self._lock:
            if len(self._free) < _MAX_FREE:
                self._free.append(staging)
