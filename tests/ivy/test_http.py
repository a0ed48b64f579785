"""Bodies: limits, budget, encodings, request ids."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from typing import Any

import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.ivy import http
from hotbed.ivy.http import BodyBudget, Reply, decompress, read_body, sane_request_id, send_reply


def receiver(parts: Iterable[bytes], *, ends: bool = True):
    """ASGI receive of a body in parts; without `ends` the client leaves after them."""
    parts = list(parts)
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": part, "more_body": not ends or index < len(parts) - 1}
        for index, part in enumerate(parts)
    ]
    messages.append({"type": "http.disconnect"})
    waiting = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(waiting)

    return receive


async def read(parts: Iterable[bytes], *, max_bytes: int = 100, ends: bool = True, **headers: str):
    budget = BodyBudget(1000)
    named = {k.replace("_", "-").encode(): v.encode() for k, v in headers.items()}
    try:
        receive = receiver(parts, ends=ends)
        body = await read_body(receive, named, max_bytes=max_bytes, budget=budget)
    except HotbedError:
        assert budget.held_bytes == 0
        raise
    assert budget.held_bytes == len(body)
    return body


@pytest.mark.parametrize("parts", [[b""], [b"abc"], [b"a", b"", b"bc"], [b"x" * 100]])
async def test_a_body_comes_whole_however_it_is_cut(parts):
    assert await read(parts) == b"".join(parts)


@pytest.mark.parametrize("parts", [[b"x" * 101], [b"x" * 60, b"x" * 41], [b"x"] * 101])
async def test_one_byte_over_the_limit_is_too_large(parts):
    with pytest.raises(HotbedError) as caught:
        await read(parts)
    assert caught.value.code is ErrorCode.TOO_LARGE
    assert "100 bytes" in caught.value.message


class Untouched(BodyBudget):
    def take(self, num_bytes: int) -> None:
        raise AssertionError("nothing of the body should be held")


async def test_a_declared_length_over_the_limit_is_refused_after_the_body_was_let_pass():
    taken = []
    inner = receiver([b"x" * 60, b"x" * 60])

    async def receive():
        taken.append(1)
        return await inner()

    with pytest.raises(HotbedError) as caught:
        await read_body(receive, {b"content-length": b"120"}, max_bytes=100, budget=Untouched(1))
    assert caught.value.code is ErrorCode.TOO_LARGE
    assert len(taken) == 2


async def test_an_endless_body_is_not_read_for_ever(monkeypatch):
    monkeypatch.setattr(http, "MAX_DISCARDED_BYTES", 500)
    taken = []

    async def receive():
        taken.append(1)
        return {"type": "http.request", "body": b"x" * 50, "more_body": True}

    with pytest.raises(HotbedError):
        await read_body(receive, {}, max_bytes=100, budget=BodyBudget(1000))
    assert len(taken) == 3 + 10


async def test_a_client_that_leaves_within_its_body_is_cancelled():
    with pytest.raises(HotbedError) as caught:
        await read([b"abc"], ends=False)
    assert caught.value.code is ErrorCode.CANCELLED


async def test_bodies_held_at_a_time_are_bounded_but_one_always_fits():
    budget = BodyBudget(10)
    budget.take(50)
    with pytest.raises(HotbedError) as caught:
        await read_body(receiver([b"a", b"b"]), {}, max_bytes=100, budget=budget)
    assert caught.value.code is ErrorCode.OVERLOADED
    assert caught.value.retry_after_s
    assert budget.held_bytes == 50
    budget.give_back(50)
    assert await read_body(receiver([b"ab"]), {}, max_bytes=100, budget=budget) == b"ab"


TEXT = b'{"input": "text"}' * 10


def raw_deflate(data: bytes) -> bytes:
    encoder = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return encoder.compress(data) + encoder.flush()


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (gzip.compress(TEXT), b"gzip"),
        (zlib.compress(TEXT), b"deflate"),
        (raw_deflate(TEXT), b"deflate"),
    ],
    ids=["gzip", "deflate", "raw deflate"],
)
def test_compressed_bodies_are_read(body, encoding):
    assert decompress(body, encoding, max_bytes=len(TEXT)) == TEXT
    with pytest.raises(HotbedError) as caught:
        decompress(body, encoding, max_bytes=len(TEXT) - 1)
    assert caught.value.code is ErrorCode.TOO_LARGE


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda body: body[:-1],
        lambda body: body[: len(body) // 2],
        lambda body: b"",
        lambda body: b"{}",
        lambda body: body + b"x",
    ],
)
def test_corrupt_compressed_bodies_are_400_not_500(encoding, damage):
    good = gzip.compress(TEXT) if encoding == b"gzip" else zlib.compress(TEXT)
    with pytest.raises(HotbedError) as caught:
        decompress(damage(good), encoding, max_bytes=1000)
    assert caught.value.code is ErrorCode.INVALID_INPUT


def test_a_zip_bomb_is_stopped_at_the_cap():
    bomb = gzip.compress(b"0" * 50_000_000)
    assert len(bomb) < 60_000
    with pytest.raises(HotbedError) as caught:
        decompress(bomb, b"gzip", max_bytes=1_000_000)
    assert caught.value.code is ErrorCode.TOO_LARGE


@pytest.mark.parametrize("value", [b"abc", b"7c1a-4:x/y_z.~"[:13], b"a" * 128])
def test_plain_request_ids_are_echoed(value):
    assert sane_request_id(value) == value


@pytest.mark.parametrize("value", [None, b"", b"a" * 129, b"a b", b"a\r\nset-cookie: x", b"\xff"])
def test_odd_request_ids_are_not(value):
    assert sane_request_id(value) is None


async def test_an_answer_without_content_has_no_length():
    sent = []

    async def send(message):
        sent.append(message)

    await send_reply(send, Reply(204, b"", ()), ((b"x", b"y"),))
    await send_reply(send, Reply(200, b"abc", ()))
    assert sent[0]["headers"] == [(b"x", b"y")]
    assert sent[2]["headers"] == [(b"content-length", b"3")]
