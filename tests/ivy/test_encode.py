"""Rows to JSON values."""

from __future__ import annotations

import asyncio
import base64
import json

import numpy as np
import orjson

from hotbed.ivy import encode


def rows(*shapes: tuple[int, int]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("<f4") for shape in shapes]
    for array in arrays:
        array.flags.writeable = False
    return arrays


def test_base64_is_little_endian_float32():
    array = np.array([[1.0, -2.5], [0.1, 3e-39]], dtype="<f4")
    first, second = encode.base64_rows([array])
    assert base64.b64decode(first) == bytes.fromhex("0000803f000020c0")
    assert np.frombuffer(base64.b64decode(second), "<f4").tolist() == array[1].tolist()


async def test_float_text_reads_back_as_the_same_float32():
    arrays = rows((3, 7), (1, 7))
    answer = json.loads(orjson.dumps(await encode.number_rows(arrays)))
    assert np.array_equal(np.array(answer, dtype=np.float32), np.concatenate(arrays))


async def test_other_work_runs_between_the_slices_of_a_large_answer():
    # The loop must not be held for the 60 ms and more of 2,048 x 1,024 numbers.
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticker = asyncio.ensure_future(tick())
    await encode.number_rows(rows((10 * encode.SLICE_NUMBERS // 1024, 1024)))
    ticker.cancel()
    assert ticks >= 9
