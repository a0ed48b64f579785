"""Rows as JSON values, in every form that some dialect asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import orjson
import pybase64
from numpy.typing import NDArray

from hotbed.core.output import OutputDtype

Encoding = Literal[
    "float", "base64", "int8", "uint8", "binary", "ubinary", "base64_int8", "base64_binary"
]

ROW_DTYPES: Mapping[Encoding, OutputDtype] = {
    "float": OutputDtype.FLOAT32,
    "base64": OutputDtype.FLOAT32,
    "int8": OutputDtype.INT8,
    "uint8": OutputDtype.INT8,
    "binary": OutputDtype.BINARY,
    "ubinary": OutputDtype.UBINARY,
    "base64_int8": OutputDtype.INT8,
    "base64_binary": OutputDtype.UBINARY,
}
"""Type of the rows that an encoding is written from."""

# Float text costs about 30 us per 1,024 numbers and orjson holds the GIL meanwhile, so a thread
# would not help the event loop: larger answers are written in slices of this many numbers
# (about 2 ms, 2026-11-30) with the loop running in between.
SLICE_NUMBERS = 65_536

# Bits of each byte from the last to the first.
_REVERSED = np.packbits(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)[:, ::-1], axis=1
)[:, 0]

Rows = list[str] | list[orjson.Fragment]


async def encode_rows(arrays: Sequence[NDArray[Any]], encoding: Encoding) -> Rows:
    """One JSON value a row.

    Args:
        arrays: each [n, width] of the type in `ROW_DTYPES`.
        encoding: ``float``, ``int8``, ``binary`` and ``ubinary`` are lists of the numbers as they
            are, ``uint8`` a list of int8 + 128; ``base64`` and ``base64_int8`` are base64 of the
            row's bytes; ``base64_binary`` is base64 of the bits with the first dimension in the
            least significant bit, as Perplexity's API packs them (Hugging Face's ubinary has it in
            the most significant one).
    """
    if encoding in ("base64", "base64_int8"):
        return base64_rows(arrays)
    if encoding == "base64_binary":
        return base64_rows([_REVERSED[array] for array in arrays])
    if encoding == "uint8":
        arrays = [array.view(np.uint8) ^ np.uint8(128) for array in arrays]
    return await number_rows(arrays)


def base64_rows(arrays: Sequence[NDArray[Any]]) -> list[str]:
    """One string a row of the arrays [n, width]: base64 of the row's bytes."""
    return [pybase64.b64encode_as_string(row) for array in arrays for row in array]


async def number_rows(arrays: Sequence[NDArray[Any]]) -> list[orjson.Fragment]:
    """One JSON list a row; float32 in the shortest decimal text that reads back as the same."""
    fragments: list[orjson.Fragment] = []
    numbers = 0
    for row in _rows(arrays):
        fragments.append(orjson.Fragment(orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)))
        numbers += len(row)
        if numbers >= SLICE_NUMBERS:
            numbers = 0
            await asyncio.sleep(0)
    return fragments


def _rows(arrays: Sequence[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    for array in arrays:
        yield from array
