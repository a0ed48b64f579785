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
from hotbed.rose.layers.dense import Dense, project
from hotbed.rose.layers.pool import PooledRows
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

    def of_pooled(self, rows_SD: Tensor) -> Tensor:
        """Pooled fp32 rows [R, D] to the rows that `finish` takes."""
        return project(rows_SD, self.dense)

    def of_pooled_on_gpu(self, rows: PooledRows) -> PooledRows:
        """The same, for what the pooling kernel gives; launches only, part of the graph."""
        if not self.dense:
            return rows
        projected = project(rows.pooled, self.dense)
        return PooledRows(
            pooled=projected,
            default_form=(
                F.normalize(projected, dim=-1, eps=NORM_EPS) if self.normalize else projected
            ),
            finite=torch.isfinite(projected).all(dim=-1).to(torch.uint8),
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
