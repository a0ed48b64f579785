"""What a client asks for: the kind of output, and its rows' dimensions, type and normalisation.

Order of the steps, always in fp32: cut to `dimensions` (Matryoshka), normalise, quantise.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

OutputKind = Literal["dense", "tokens", "multi_vector", "sparse"]
"""``dense``: one row a sequence (or span); of a model that scores, its scores. ``tokens``: the
final state of every token, special tokens included. ``multi_vector``: a vector a token for late
interaction (ColBERT), from the model's own head. ``sparse``: weights of token ids (SPLADE,
bge-m3), each row one `SPARSE_ENTRY`, ids rising within a sequence, weights above 0."""
OUTPUT_KINDS: tuple[OutputKind, ...] = get_args(OutputKind)

SPARSE_ENTRY = np.dtype([("token", "<i4"), ("weight", "<f4")])
"""One row of a sparse output."""


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
        kind: what is asked for. Of sparse outputs all of the above stays as it is.
        also: more outputs of the same pass over the model, of other kinds, without any `also`.
    """

    dimensions: int = 0
    dtype: OutputDtype = OutputDtype.FLOAT32
    normalize: bool | None = None
    raw_scores: bool = False
    kind: OutputKind = "dense"
    also: tuple[OutputSpec, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the answer is one row a sequence (or span) and nothing more."""
        return self.kind == "dense" and not self.also

    def each(self) -> tuple[OutputSpec, ...]:
        """One spec an output, this one's own first."""
        return (replace(self, also=()), *self.also) if self.also else (self,)

    @property
    def row_dtype(self) -> np.dtype[np.generic]:
        """Type of the elements of a row."""
        return SPARSE_ENTRY if self.kind == "sparse" else self.dtype.numpy

    def row_width(self, native_dimensions: int) -> int:
        """Elements in a row of this spec (bytes for the packed types); 1 of a sparse output."""
        if self.kind == "sparse":
            return 1
        dims = self.dimensions or native_dimensions
        return dims // 8 if self.dtype.is_packed else dims


@dataclass(frozen=True, slots=True)
class OutputSegment:
    """The batch's rows start to stop (exclusive), one a sequence or span, share one output spec.

    Several segments may be of the same rows: outputs of one pass.
    """

    start: int
    stop: int
    spec: OutputSpec
