"""A CudaRunner without a card: streams and events that are always done, graphs that run their work.

What is real: the runner, the graphs' book-keeping, static inputs, staging, the pooling kernel (in
Triton's interpreter), the waiting thread. What is not: that anything is asynchronous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from hotbed.rose import cuda
from hotbed.rose.batch import PackedBatch
from hotbed.rose.cuda import CudaRunner, CudaSettings
from hotbed.rose.graphs import GraphCache, _Captured
from hotbed.rose.layers import fused
from hotbed.rose.outputs import Outputs
from hotbed.rose.recipe import Recipe
from hotbed.rose.staging import StagingPool

WIDTH = 24
VOCABULARY = 200


class TableModel:
    """A token's state is its row of a table plus its position; pad rows are NaN."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.table = torch.randn(VOCABULARY, WIDTH, generator=generator)
        self.fail_with: Exception | None = None
        self.longest = 0

    def forward(self, batch: PackedBatch) -> Tensor:
        if self.fail_with is not None:
            raise self.fail_with
        self.longest = max(self.longest, int(batch.positions.max()) + 1)
        states = self.table[batch.token_ids.long()] + batch.positions[:, None]
        states[int(batch.cu_seqlens[-2]) :] = float("nan")
        return states

    def mean(self, ids: Any) -> Tensor:
        """The row of one sequence under mean pooling, not normalised."""
        ids = torch.as_tensor(ids, dtype=torch.long)
        return (self.table[ids] + torch.arange(len(ids))[:, None]).mean(0)


class _Stream:
    def __init__(self, device: Any = None) -> None:
        self.device_index = 0
        self.device = torch.device("cpu")

    def synchronize(self) -> None:
        pass


class _Event:
    def record(self, stream: _Stream) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True


class _Graph:
    def __init__(self, work: Callable[[], Any], result: Any) -> None:
        self._work, self._result = work, result

    def replay(self) -> None:
        # Into the same memory, as a graph does. `pooled` may be the memory of `packed`.
        made = self._work()
        with torch.inference_mode():
            self._result.pooled.copy_(made.pooled)
            self._result.packed.copy_(made.packed)
            if made.states is not None:
                self._result.states.copy_(made.states)


def _record(cache: GraphCache[Any], work: Callable[[], Any]) -> _Captured[Any]:
    result = work()
    graph: Any = _Graph(work, result)
    return _Captured(graph, result, num_bytes=1)


class _NoDevice:
    def __init__(self, device: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


class FakeCuda:
    """Makes runners; `current` is torch's current stream."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current: Any = _Stream()
        monkeypatch.setattr(fused, "runs_on_kernels", lambda weight: True)
        monkeypatch.setattr(GraphCache, "_record", _record)
        monkeypatch.setattr(cuda, "StagingPool", lambda pinned: StagingPool(pinned=False))
        for name, fake in {
            "Stream": _Stream,
            "Event": _Event,
            "graph_pool_handle": lambda: (0, 0),
            "device": _NoDevice,
            "current_stream": lambda device=None: self.current,
            "set_stream": lambda stream: setattr(self, "current", stream),
        }.items():
            monkeypatch.setattr(torch.cuda, name, fake)

    def runner(
        self,
        model: TableModel,
        recipe: Recipe,
        *,
        max_tokens: int = 128,
        outputs: Outputs | None = None,
        whole_step_attention: bool = False,
        **settings: Any,
    ) -> CudaRunner:
        return CudaRunner(
            model,
            recipe,
            device=torch.device("cpu"),
            settings=CudaSettings(**settings),
            by_length=False,
            max_tokens=max_tokens,
            outputs=outputs,
            whole_step_attention=whole_step_attention,
        )
