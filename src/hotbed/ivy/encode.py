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
from hotbed.core.rows import RowSet

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


async def vector_lists(rows: RowSet) -> list[orjson.Fragment]:
    """One JSON list of lists a sequence: its rows."""
    lists: list[orjson.Fragment] = []
    numbers = 0
    for part in rows.split():
        step = max(1, SLICE_NUMBERS // max(1, part.shape[1]))
        pieces = []
        for start in range(0, len(part), step):
            piece = orjson.dumps(part[start : start + step], option=orjson.OPT_SERIALIZE_NUMPY)
            pieces.append(piece[1:-1])
            numbers += part[start : start + step].size
            if numbers >= SLICE_NUMBERS:
                numbers = 0
                await asyncio.sleep(0)
        lists.append(orjson.Fragment(b"[" + b",".join(pieces) + b"]"))
    return lists


def vector_strings(rows: RowSet) -> list[str]:
    """One string a sequence: base64 of its rows' bytes, end to end."""
    return [pybase64.b64encode_as_string(part.tobytes()) for part in rows.split()]


async def entry_lists(rows: RowSet, token: str, weight: str) -> list[list[dict[str, Any]]]:
    """One list a sequence, an object an entry, whose fields have these names; for
    `orjson.OPT_SERIALIZE_NUMPY`.
    """
    lists = []
    numbers = 0
    for part in rows.split():
        # Weights stay float32: orjson then writes the shortest text that reads back as the same.
        pairs = zip(part["token"][:, 0].tolist(), part["weight"][:, 0], strict=True)
        lists.append([{token: number, weight: value} for number, value in pairs])
        numbers += len(part)
        if numbers >= SLICE_NUMBERS // 16:  # objects take longer than numbers
            numbers = 0
            await asyncio.sleep(0)
    return lists


def _rows(arrays: Sequence[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    for array in arrays:
        yield from array
