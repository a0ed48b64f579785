"""What a client asks the rows to be: dimensions, type, normalised or not; scores raw or not.

Order of the steps, always in fp32: cut to `dimensions` (Matryoshka), normalise, quantise.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np


class OutputDtype(enum.Enum):
    """Type of the rows as they leave the engine."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"
    """Signed bytes by the model's own recipe; a model without one scales each row by its largest
    magnitude: round(x / max|x| * 127). Compare by cosine."""
    BINARY = "binary"
    """Bit set where x >= 0, eight a byte, most significant bit first, as int8 (byte - 128)."""
    UBINARY = "ubinary"
    """The same bits as uint8."""

    @property
    def numpy(self) -> np.dtype[np.generic]:
        return _NUMPY[self]

    @property
    def is_packed(self) -> bool:
        """Whether eight dimensions share a byte, so that `dimensions` must divide by 8."""
        return self in (OutputDtype.BINARY, OutputDtype.UBINARY)


_NUMPY: dict[OutputDtype, np.dtype[np.generic]] = {
    OutputDtype.FLOAT32: np.dtype("<f4"),
    OutputDtype.FLOAT16: np.dtype("<f2"),
    OutputDtype.INT8: np.dtype("i1"),
    OutputDtype.BINARY: np.dtype("i1"),
    OutputDtype.UBINARY: np.dtype("u1"),
}


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One output recipe.

    Attributes:
        dimensions: leading dimensions to keep; 0 keeps the model's native number.
        dtype: type of the rows.
        normalize: divide each row by its L2 norm after the cut; None does what the model's files
            say.
        raw_scores: the logits instead of what the model's activation makes of them. Of a model that
            scores, the other three stay as they are: its rows are float32 [labels].
    """

    dimensions: int = 0
    dtype: OutputDtype = OutputDtype.FLOAT32
    normalize: bool | None = None
    raw_scores: bool = False

    def row_width(self, native_dimensions: int) -> int:
        """Elements of `dtype` in a row of this spec (bytes for the packed types)."""
        dims = self.dimensions or native_dimensions
        return dims // 8 if self.dtype.is_packed else dims


@dataclass(frozen=True, slots=True)
class OutputSegment:
    """Rows start to stop (exclusive) of a step share one output spec."""

    start: int
    stop: int
    spec: OutputSpec
