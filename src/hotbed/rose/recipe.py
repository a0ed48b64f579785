"""How a model turns token states into rows: one frozen record, and its use on a step's segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from hotbed.core.output import OutputDtype, OutputSegment, OutputSpec
from hotbed.rose.layers.quantize import Quantizer, finish


@dataclass(frozen=True, slots=True)
class Recipe:
    """Pooling, the default normalisation, and the model's own int8 recipe."""

    pooling: Literal["mean", "cls", "last"]
    normalize: bool
    quantizer: Quantizer

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
