"""How a model turns token states into rows: one frozen record, and its use on a step's segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.checkpoint.records import Checkpoint
from hotbed.core.output import OutputDtype, OutputSegment, OutputSpec
from hotbed.rose.batch import PackedBatch
from hotbed.rose.layers.dense import Dense, project
from hotbed.rose.layers.pool import PooledRows, pool, pool_rows
from hotbed.rose.layers.quantize import NORM_EPS, Quantizer, finish
from hotbed.rose.weights import load_fp32


@dataclass(frozen=True, slots=True)
class Recipe:
    """Pooling, Dense modules, the default normalisation, and the model's own int8 recipe."""

    pooling: Literal["mean", "cls", "last"]
    normalize: bool
    quantizer: Quantizer
    dense: tuple[Dense, ...] = ()

    @staticmethod
    def load(checkpoint: Checkpoint, device: torch.device) -> Recipe:
        """The recipe of a model, the weights of its Dense modules on `device`."""
        dense = []
        for module in checkpoint.dense:
            tensors = load_fp32(module.tensors, device=device)
            dense.append(
                Dense(tensors["linear.weight"], tensors.get("linear.bias"), module.activation)
            )
        pooling = checkpoint.pooling
        return Recipe(pooling.pooling, pooling.normalize, checkpoint.quantizer, tuple(dense))

    def rows_on_cpu(self, states_TD: Tensor, batch: PackedBatch) -> Tensor:
        """Token states to fp32 rows [S, D], in the order of the caller's sequences."""
        rows = pool(states_TD, batch, self.pooling)
        if len(batch.restore) > 1:
            rows = rows[torch.from_numpy(batch.restore)]
        return project(rows, self.dense)

    def rows_on_gpu(self, states_TD: Tensor, batch: PackedBatch) -> PooledRows:
        """Token states to the step's rows; launches only, so that it can be captured."""
        if not self.dense:
            return pool_rows(states_TD, batch, self.pooling, normalize=self.normalize)
        pooled = pool_rows(states_TD, batch, self.pooling, normalize=False).pooled
        rows = project(pooled, self.dense)
        return PooledRows(
            pooled=rows,
            default_form=F.normalize(rows, dim=-1, eps=NORM_EPS) if self.normalize else rows,
            finite=torch.isfinite(rows).all(dim=-1).to(torch.uint8),
        )

    def is_default_form(self, spec: OutputSpec, native_dimensions: int) -> bool:
        """Whether a request for `spec` gets what one without wishes gets, however it says so."""
        return (
            spec.dtype is OutputDtype.FLOAT32
            and spec.dimensions in (0, native_dimensions)
            and spec.normalize in (None, self.normalize)
        )

    def finish(self, rows_SD: Tensor, segments: Sequence[OutputSegment]) -> list[Tensor]:
        """Pooled fp32 rows [S, D] to one tensor a segment, on the same device."""
        return [
            finish(
                rows_SD[segment.start : segment.stop],
                segment.spec,
                normalize=self.normalize,
                quantizer=self.quantizer,
            )
            for segment in segments
        ]
