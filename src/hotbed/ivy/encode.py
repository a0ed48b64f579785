"""Rows as JSON values: lists of numbers, or base64 of little-endian float32."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pybase64
from numpy.typing import NDArray

# Float text costs about 30 us per 1,024 numbers and orjson holds the GIL meanwhile, so a thread
# would not help the event loop: larger answers are written in slices of this many numbers
# (about 2 ms, 2026-11-30) with the loop running in between.
SLICE_NUMBERS = 65_536


def base64_rows(arrays: Sequence[NDArray[Any]]) -> list[str]:
    """One string a row of the arrays [n, width]: base64 of the row's bytes."""
    return [pybase64.b64encode_as_string(row) for array in arrays for row in array]


async def float_rows(arrays: Sequence[NDArray[Any]]) -> list[orjson.Fragment]:
    """One JSON list a row, in the shortest decimal text that reads back as the same float32."""
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
