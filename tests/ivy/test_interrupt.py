"""A lost client or a passed deadline ends the work, and nothing else does."""

from __future__ import annotations

import asyncio

import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.ivy.errors import HttpError
from hotbed.ivy.interrupt import WATCH_DELAY_S, Interrupt


class Client:
    """ASGI receive of a client whose body was read."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.watched = asyncio.Event()

    async def receive(self):
        self.watched.set()
        await self.left.wait()
        return {"type": "http.disconnect"}


def later(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


def after_body(client: Client, seconds: float) -> Interrupt:
    """An interrupt whose request has been read; enter it."""
    interrupt = Interrupt(client.receive, later(seconds))
    interrupt._is_body_read = True
    return interrupt


async def test_work_that_ends_in_time_is_not_touched_and_leaves_no_task():
    client = Client()
    before = asyncio.all_tasks()
    with after_body(client, 60):
        await asyncio.sleep(0)
    with after_body(client, 60):
        await client.watched.wait()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_a_client_that_leaves_cancels_the_work():
    client = Client()

    async def leave() -> None:
        await client.watched.wait()
        client.left.set()

    leaver = asyncio.ensure_future(leave())
    with pytest.raises(HotbedError) as caught, after_body(client, 60):
        await asyncio.Event().wait()
    await leaver
    assert caught.value.code is ErrorCode.CANCELLED
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_messages_are_not_taken_from_who_reads_the_body():
    client = Client()
    with Interrupt(client.receive, later(60)) as interrupt:
        await asyncio.sleep(2 * WATCH_DELAY_S)
        assert not client.watched.is_set()
        interrupt.body_read()
        await client.watched.wait()


@pytest.mark.parametrize("seconds", [0.0, 2 * WATCH_DELAY_S])
async def test_a_passed_deadline_ends_the_work(seconds):
    with pytest.raises(HotbedError) as caught, after_body(Client(), seconds):
        await asyncio.Event().wait()
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("seconds", [0.0, 2 * WATCH_DELAY_S])
async def test_a_body_that_does_not_come_in_time_is_408(seconds):
    with pytest.raises(HttpError) as caught, Interrupt(Client().receive, later(seconds)):
        await asyncio.Event().wait()
    assert caught.value.status == 408


async def test_an_error_of_the_work_passes_through():
    with pytest.raises(ZeroDivisionError), after_body(Client(), 60):
        raise ZeroDivisionError


async def test_a_cancellation_from_elsewhere_passes_through():
    started = asyncio.Event()

    async def work() -> None:
        with after_body(Client(), 60):
            started.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
