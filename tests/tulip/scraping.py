"""The metrics page of a server, as Prometheus would read it."""

from __future__ import annotations

import asyncio
import re
import socket
import urllib.request
from collections.abc import Callable

from tests.tulip.conftest import WAIT_S

FAILED = "hotbed_tulip_failed_steps_total"
QUEUE = "hotbed_tulip_queue_tokens"
UNSENT = "hotbed_tulip_unsent_bytes"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def scrape(port: int) -> dict[str, float]:
    """Samples of the page by name, labels included."""

    def get() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WAIT_S) as page:
            return str(page.read().decode())

    text = await asyncio.to_thread(get)
    return {m[1]: float(m[2]) for m in re.finditer(r"^(hotbed\S+) (\S+)$", text, re.MULTILINE)}


async def scrape_until(port: int, name: str, is_there: Callable[[float], bool]) -> None:
    """Until a sample of the page is as it is to be."""
    async with asyncio.timeout(WAIT_S):
        while not is_there((await scrape(port))[name]):
            await asyncio.sleep(0.02)


def items(outcome: str) -> str:
    """Name of the sample."""
    return f'hotbed_tulip_items_total{{outcome="{outcome}"}}'
