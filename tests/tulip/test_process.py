"""The process: SIGTERM drains, exit codes tell a supervisor what to do. Cases 127 and 128."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.core.exit_codes import EXIT_FAILURE
from hotbed.core.notify import READY
from hotbed.tulip.testing import expected_rows
from hotbed.wire.client import TulipClient
from tests.tulip.conftest import WAIT_S

# A server whose engine takes 0.3 s a step, with the loader passed as a parameter.
SLOW = """
import logging, sys
from hotbed.tulip.__main__ import run
from hotbed.tulip.settings import TulipSettings
from hotbed.tulip.testing import FakeEngine
logging.basicConfig(level="INFO")
sys.exit(run(TulipSettings(listen=sys.argv[1]), lambda _: FakeEngine(step_s=0.3)))
"""

# An engine that hangs, with a thread that Python waits for when it exits.
HANGING = """
import sys, threading
from hotbed.tulip.__main__ import run
from hotbed.tulip.settings import TulipSettings
from hotbed.tulip.testing import FakeEngine
class Hanging(FakeEngine):
    def step(self, *args):
        if self.steps:
            threading.Thread(target=threading.Event().wait).start()
            threading.Event().wait()
        return super().step(*args)
sys.exit(run(TulipSettings(listen=sys.argv[1], step_timeout_s=0.1), lambda _: Hanging()))
"""


@contextmanager
def process(tmp_path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that has said that it is ready."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(WAIT_S)
        child = subprocess.Popen(
            [sys.executable, *arguments],
            env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "PATH": ""},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert notified.recv(100).decode() == READY
            yield child
        finally:
            child.kill()
            child.wait()
            if child.stderr is not None:
                child.stderr.close()


async def test_sigterm_lets_what_runs_finish_and_exits_0(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 's'}"
    with process(tmp_path, "-c", SLOW, address) as child:
        async with TulipClient(address) as client:
            await client.info(timeout_s=WAIT_S)
            running = asyncio.ensure_future(client.embed([[1, 2]], timeout_s=WAIT_S))
            await asyncio.sleep(0)
            await client.info(timeout_s=WAIT_S)  # behind the embed, so that one has arrived
            child.send_signal(signal.SIGTERM)
            np.testing.assert_array_equal((await running).rows, expected_rows([[1, 2]]))
        log = child.communicate(timeout=WAIT_S)[1]
        assert child.returncode == 0
        assert "ready:" in log
        assert address in log
        assert "stopping on SIGTERM" in log
        assert "Traceback" not in log


async def test_a_device_that_hangs_ends_the_process_so_that_it_is_started_again(
    tmp_path: Path,
) -> None:
    address = f"unix:{tmp_path / 's'}"
    with process(tmp_path, "-c", HANGING, address) as child:
        async with TulipClient(address) as client:
            with pytest.raises(HotbedError) as caught:
                await client.embed([[1]], timeout_s=WAIT_S)
        assert caught.value.code is ErrorCode.UNAVAILABLE
        log = child.communicate(timeout=WAIT_S)[1]
        assert child.returncode == EXIT_FAILURE
        assert "the engine is dead: TimeoutError" in log


async def test_the_fake_server_serves_as_a_process(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 's'}"
    arguments = ("-m", "hotbed.tulip.testing", "--listen", address, "--dimensions", "16")
    with process(tmp_path, *arguments) as child:
        async with TulipClient(address) as client:
            info, _ = await client.info(timeout_s=WAIT_S)
            assert info.dimensions == 16
            embedding = await client.embed([[3]], timeout_s=WAIT_S)
            np.testing.assert_array_equal(embedding.rows, expected_rows([[3]], info=info))
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=WAIT_S)
        assert child.returncode == 0


def run_tulip(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hotbed.tulip", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_wrong_option_and_a_wrong_value_exit_2_with_one_clear_line() -> None:
    wrong = {"--lissen=x": "--lissen", "--listen=x": "listen must be host:port"}
    for option, message in wrong.items():
        done = run_tulip(option)
        assert done.returncode == 2
        assert message in done.stderr + done.stdout
        assert "Traceback" not in done.stderr


def test_a_model_that_is_not_there_exits_2(tmp_path: Path) -> None:
    done = run_tulip(f"--model={tmp_path / 'none'}", "--offline", "--listen=127.0.0.1:0")
    assert done.returncode == 2, done.stderr
    assert "cannot load the model" in done.stderr
    assert "Traceback" not in done.stderr
