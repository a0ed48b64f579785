"""The facts of the start-up page come from the replica itself."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from hotbed.serve.child import Child, ChildSpec
from hotbed.serve.info import ask_info
from hotbed.tulip.testing import FAKE_INFO
from tests.serve.support import Recorder


async def test_replica_tells_what_it_serves(run_dir: Path) -> None:
    address = f"unix:{run_dir}/tulip.sock"
    command = (sys.executable, "-m", "hotbed.tulip.testing", "--listen", address)
    ready = asyncio.Event()
    child = await Child.start(
        ChildSpec("fake", command, dict(os.environ)),
        run_dir,
        write_line=Recorder().write_line,
        on_ready=ready.set,
    )
    async with asyncio.timeout(30):
        await ready.wait()
        assert await ask_info(address) == FAKE_INFO
    child.terminate()
    assert await child.wait() == 0
