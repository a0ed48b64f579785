"""How a model turns token states into rows: frozen records, and their use on a step's segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from hotbed.checkpoint.records import Checkpoint, DenseModule
from hotbed.core.model_info import Activation
from hotbed.core.output import OutputDtype, OutputSegment, OutputSpec
from hotbed.rose.layers.dense import Dense, project
from hotbed.rose.layers.head import Head, activate
from hotbed.rose.layers.pool import PooledRows, packed_rows
from hotbed.rose.layers.quantize import Quantizer, finish
from hotbed.rose.layers.rows_fp32 import unit_rows
from hotbed.rose.weights import load_fp32

Pooling = Literal["mean", "cls", "last"]


class AnyRecipe(Protocol):
    """What a runner asks between the states and the rows of a segment."""

    @property
    def pooling(self) -> Pooling: ...

    @property
    def normalize(self) -> bool:
        """Whether the pooling kernel's second output is wanted normalised."""
        ...

    def of_pooled(self, rows_SD: Tensor) -> tuple[Tensor, Tensor]:
        """Pooled fp32 rows [S, D] to the rows that `finish` takes, and bool [S]: whether each and
        all values on its way were finite.
        """
        ...

    def of_pooled_on_gpu(self, rows: PooledRows) -> PooledRows:
        """The same, for what the pooling kernel gives; part of the graph."""
        ...

    def is_default_form(self, spec: OutputSpec, native_dimensions: int) -> bool:
        """Whether a request for `spec` gets what one without wishes gets, however it says so."""
        ...

    def finish(self, rows: Tensor, segments: Sequence[OutputSegment]) -> list[Tensor]:
        """Rows of all sequences to one tensor a segment, on the same device."""
        ...


@dataclass(frozen=True, slots=True)
class Recipe:
    """Pooling, Dense modules, the default normalisation, and the model's own int8 recipe."""

    pooling: Pooling
    normalize: bool
    quantizer: Quantizer
    dense: tuple[Dense, ...] = ()
    fixed: bool = False
    """As for `hotbed.rose.layers.rows_fp32`."""

    @staticmethod
    def load(checkpoint: Checkpoint, device: torch.device, *, fixed: bool = False) -> Recipe:
        """The recipe of a model, the weights of its Dense modules on `device`."""
        pooling = checkpoint.pooling
        dense = load_dense(checkpoint.dense, device)
        return Recipe(pooling.pooling, pooling.normalize, checkpoint.quantizer, dense, fixed)

    def of_pooled(self, rows_SD: Tensor) -> tuple[Tensor, Tensor]:
        """Pooled fp32 rows [R, D] to the rows that `finish` takes, and which were finite."""
        return project(rows_SD, self.dense, fixed=self.fixed)

    def of_pooled_on_gpu(self, rows: PooledRows) -> PooledRows:
        """The same, for what the pooling kernel gives; launches only, part of the graph."""
        if not self.dense:
            return rows
        projected, finite = self.of_pooled(rows.pooled)
        form = unit_rows(projected, fixed=self.fixed) if self.normalize else projected
        return packed_rows(projected, form, finite)

    def is_default_form(self, spec: OutputSpec, native_dimensions: int) -> bool:
        """Whether `spec` is float32, all dimensions, normalised as by default."""
        return (
            spec.dtype is OutputDtype.FLOAT32
            and spec.dimensions in (0, native_dimensions)
            and spec.normalize in (None, self.normalize)
        )

    def finish(self, rows: Tensor, segments: Sequence[OutputSegment]) -> list[Tensor]:
        """Pooled fp32 rows [S, D] to one tensor a segment."""
        return [
            finish(
                rows[segment.start : segment.stop],
                segment.spec,
                normalize=self.normalize,
                quantizer=self.quantizer,
                fixed=self.fixed,
            )
            for segment in segments
        ]


def load_dense(modules: Sequence[DenseModule], device: torch.device) -> tuple[Dense, ...]:
    """The layers of Dense modules, in fp32 on `device`."""
    layers = []
    for module in modules:
        tensors = load_fp32(module.tensors, device=device)
        prefix = "linear." if "linear.weight" in tensors else ""
        layers.append(
            Dense(
                tensors[f"{prefix}weight"],
                tensors.get(f"{prefix}bias"),
                module.activation,
                module.residual,
                tensors.get("residual.weight"),
            )
        )
    return tuple(layers)


@dataclass(frozen=True, slots=True)
class ScoreRecipe:
    """The token whose state the head reads, the head, and what makes scores of its logits."""

    pooling: Pooling
    head: Head
    activation: Activation
    normalize: bool = False
    fixed: bool = False
    """As for `hotbed.rose.layers.rows_fp32`."""

    def of_pooled(self, rows_SD: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [S, L], and bool [S]: whether each and all values on its way were finite."""
        return self.head(rows_SD, fixed=self.fixed)

    def of_pooled_on_gpu(self, rows: PooledRows) -> PooledRows:
        """Logits, scores, and whether a row's and all values on its way were finite."""
        logits, finite = self.of_pooled(rows.pooled)
        scores = activate(logits, self.activation)
        return packed_rows(logits, scores, finite)

    def is_default_form(self, spec: OutputSpec, native_dimensions: int) -> bool:
        """Whether scores are asked for, not logits."""
        return not spec.raw_scores

    def finish(self, rows: Tensor, segments: Sequence[OutputSegment]) -> list[Tensor]:
        """Logits [S, L] to one tensor a segment, scores where the segment does not say raw."""
        return [
            logits if segment.spec.raw_scores else activate(logits, self.activation)
            for segment in segments
            for logits in (rows[segment.start : segment.stop],)
        ]
