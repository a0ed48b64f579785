"""Requests to a gateway, and what replicas may do to them."""

from __future__ import annotations

import asyncio

import numpy as np

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.wire import tulip_pb2 as pb
from tests.ivy.harness import expected_for, rows_of

TEXTS = [f"the cat {'is ' * (i % 9)}long" for i in range(60)]


def failing(code: ErrorCode, **fields):
    async def answer(item: pb.Item) -> pb.Rows:
        raise HotbedError(code, "scripted", **fields)

    return answer


async def never(item: pb.Item) -> pb.Rows:
    await asyncio.Event().wait()
    raise AssertionError


async def post(client, value=TEXTS, headers=None, **fields):
    return await client.post("/embeddings", json={"input": value, **fields}, headers=headers)


def check(answer, tokenizer, texts=TEXTS):
    assert answer.status_code == 200, answer.text
    assert np.array_equal(rows_of(answer.json()), expected_for(tokenizer, texts)[0])
