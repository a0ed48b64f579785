"""The models of the shapes in plain fp32 torch: what the engine is held to before it is timed."""

from __future__ import annotations

from torch import Tensor

from hotbed.bench.shapes import Shape
from hotbed.doctor.plain import plain_row


def reference_row(shape: Shape, weights: dict[str, Tensor], ids: Tensor) -> Tensor:
    """fp32 row [D] of one sequence of ids [T], normalised if the recipe says so."""
    return plain_row(shape.family, shape.config, shape.recipe, weights, ids)
