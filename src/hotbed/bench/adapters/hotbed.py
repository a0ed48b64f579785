"""Hotbed in process: what the `Embedder` and the `Reranker` do behind their tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from hotbed.bench.adapters.protocol import Item, Spec
from hotbed.bulk.windows import compute_batch
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.output import OutputSpec
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.attention.select import AttentionSettings
from hotbed.rose.engine import RoseEngine


class Hotbed:
    """Options: kernel_dir, attention, dtype."""

    def __init__(self, spec: Spec) -> None:
        kernel_dir = spec.options.get("kernel_dir")
        attention = AttentionSettings(
            name=spec.options.get("attention", "auto"),
            kernel_dir=None if kernel_dir is None else Path(kernel_dir),
        )
        task = cast(Literal["embed", "score"], spec.task)
        self._engine = RoseEngine.load(
            load_checkpoint(spec.folder, task=task, offline=True),
            device=spec.device,
            dtype=spec.options.get("dtype", "auto"),
            attention=attention,
            num_threads=spec.num_threads,
        )
        self._engine.warm_up()
        info = self._engine.info
        kernels = "kernels ahead of time" if kernel_dir else "no kernels ahead of time"
        where = f"CUDA graphs, {kernels}" if spec.device == "cuda" else "no server"
        self.settings = (
            f"the engine behind Embedder, token ids in, {info.dtype}, attention"
            f" {self._engine.attention}, {self._engine.default_step_tokens} tokens a step, {where}"
        )

    def prepare(self, items: Sequence[Item]) -> list[NDArray[np.int32]]:
        return [np.asarray(item.ids, dtype=np.int32) for item in items]

    def embed(self, prepared: list[NDArray[np.int32]]) -> NDArray[Any]:
        batch = RaggedBatch.from_sequences(prepared)
        return compute_batch(self._engine, batch, OutputSpec())

    def rows(self, result: NDArray[Any]) -> NDArray[Any]:
        return result
