"""Symptoms guarded: a length that is believed, a message cut in two that passes for one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hotbed.wire.framed import FramedStream
from hotbed.wire.limits import MAX_MESSAGE_BYTES


def fed(*chunks: bytes) -> FramedStream:
    """A stream on which this came, and then the end."""
    reader = asyncio.StreamReader()
    for chunk in chunks:
        reader.feed_data(chunk)
    reader.feed_eof()
    return FramedStream(reader, None)  # type: ignore[arg-type]


async def test_messages_come_whole_however_the_bytes_did() -> None:
    data = b"\x03\x00\x00\x00abc" + b"\x00\x00\x00\x00" + b"\x01\x00\x00\x00z"
    for size in (1, 2, 5, 100):
        stream = fed(*(data[i : i + size] for i in range(0, len(data), size)))
        assert [await stream.read() for _ in range(4)] == [b"abc", b"", b"z", None]


@pytest.mark.parametrize("data", [b"\x01", b"\x03\x00\x00\x00", b"\x03\x00\x00\x00ab"])
async def test_an_end_in_the_middle_of_a_message_is_no_message(data: bytes) -> None:
    with pytest.raises(ConnectionError, match="in the middle"):
        await fed(data).read()


async def test_a_length_above_the_limit_is_not_waited_for() -> None:
    head = (MAX_MESSAGE_BYTES + 1).to_bytes(4, "little")
    with pytest.raises(ConnectionError, match=str(MAX_MESSAGE_BYTES)):
        await fed(head).read()


async def test_both_ways_over_a_socket_and_large_ones_too(tmp_path: Path) -> None:
    done = asyncio.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = FramedStream(reader, writer)
        while (message := await stream.read()) is not None:
            await stream.write(message[::-1])
        stream.close()
        await stream.wait_closed()
        done.set()

    server = await asyncio.start_unix_server(echo, tmp_path / "s")
    stream = await FramedStream.connect(str(tmp_path / "s"))
    for message in (b"abc", b"", b"xy" * 3_000_000):
        await stream.write(message)
        assert await stream.read() == message[::-1]
    stream.close()
    await stream.wait_closed()
    await done.wait()
    server.close()
    await server.wait_closed()


async def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        await FramedStream.connect(str(tmp_path / "none"))
