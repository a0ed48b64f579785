"""Replicas and gateways as processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator


async def start(*arguments: str, **environment: str) -> Process:
    """`python ARGUMENTS`; its log goes to the test's output."""
    return await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env={**os.environ, **environment}
    )


async def end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


@contextlib.asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[Process]:
    process = await start(*arguments)
    try:
        yield process
    finally:
        await end(process)
