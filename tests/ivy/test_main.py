"""`python -m hotbed.ivy` as a process: options, start, readiness, SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from pathlib import Path

import httpx
import pytest

from hotbed.core.exit_codes import EXIT_CONFIGURATION, EXIT_FAILURE
from hotbed.core.notify import READY
from hotbed.ivy.__main__ import _main as main
from tests.ivy import processes
from tests.ivy.harness import unix_address
from tests.support.checkpoints import make_bert


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A small model in a folder called as the fake replica's model."""
    folder = tmp_path / "fake"
    make_bert(folder)
    return folder


@pytest.fixture
def facts(checkpoint: Path) -> tuple[str, str]:
    from hotbed.checkpoint.load import load_checkpoint

    loaded = load_checkpoint(str(checkpoint))
    return f"--vocab-size={loaded.config.vocab_size}", f"--max-tokens={loaded.max_tokens}"


class Notified:
    """The socket on which a process says that it is ready."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)

    async def wait(self) -> None:
        async with asyncio.timeout(30):
            said = await asyncio.get_running_loop().sock_recv(self._socket, 100)
        assert READY.encode() in said

    def close(self) -> None:
        self._socket.close()


async def test_a_process_serves_says_that_it_is_ready_and_stops_in_order(
    checkpoint, facts, tmp_path
):
    address = unix_address(tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    notified = Notified(tmp_path / "n")
    tulip = await processes.start(
        "-m", "hotbed.tulip.testing", "--listen", address, *facts
    )  # fmt: skip
    ivy = await processes.start(
        "-m", "hotbed.ivy", f"--model={checkpoint}", f"--replicas={address}", f"--port={port}",
        "--offline", "--served-model-names=mine", NOTIFY_SOCKET=str(notified.path),
    )  # fmt: skip
    try:
        await notified.wait()
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30
        ) as client:
            assert (await client.get("/ready")).status_code == 200
            answer = await client.post("/v1/embeddings", json={"input": "the cat", "model": "fake"})
            assert answer.status_code == 200
            assert answer.json()["model"] == "mine"
            # uvloop's clock has whole milliseconds: the timings must not come from it.
            assert "tokenize;dur=0.000" not in answer.headers["server-timing"]
        ivy.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(ivy.wait(), 20) == 0
    finally:
        notified.close()
        await processes.end(ivy)
        await processes.end(tulip)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--max-attempts=0",), EXIT_CONFIGURATION, "max_attempts"),
        (("--model=no-such-folder", "--offline"), EXIT_CONFIGURATION, "no-such-folder"),
        (("--models-file=no-such.toml",), EXIT_CONFIGURATION, "no-such.toml"),
        (("--models-file=m.toml", "--task=score"), EXIT_CONFIGURATION, "task and models_file"),
        (("--prompts-file=no-such.toml", "--model={checkpoint}"), EXIT_CONFIGURATION, "no-such"),
        (("--api-keys-file=no-such", "--model={checkpoint}"), EXIT_CONFIGURATION, "no-such"),
        (("--tls-certfile=c.pem",), EXIT_CONFIGURATION, "go together"),
        (
            ("--tls-certfile=c.pem", "--tls-keyfile=k.pem", "--port=0", "--model={checkpoint}"),
            EXIT_CONFIGURATION,
            "tls_certfile",
        ),
        (("--host=203.0.113.1", "--model={checkpoint}"), EXIT_FAILURE, "203.0.113.1"),
    ],
)
def test_what_cannot_start_says_so_with_its_exit_code(
    checkpoint, arguments, code, says, capsys, caplog
):
    arguments = [a.format(checkpoint=checkpoint) for a in arguments]
    assert main(["--fast-tokenizers=off", *arguments]) == code
    assert says in capsys.readouterr().err + caplog.text
    gc.unfreeze()


async def test_a_full_disk_under_the_log_does_not_stop_the_gateway(checkpoint, facts, tmp_path):
    address = unix_address(tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = (
        "-m", "hotbed.ivy", f"--model={checkpoint}", f"--replicas={address}", f"--port={port}",
        "--offline", "--access-log",
    )  # fmt: skip
    notified = Notified(tmp_path / "n")
    with Path("/dev/full").open("w") as full:
        ivy = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=full, stderr=full,
            env={**os.environ, "NOTIFY_SOCKET": str(notified.path)},
        )  # fmt: skip
    try:
        async with processes.running("-m", "hotbed.tulip.testing", "--listen", address, *facts):
            await notified.wait()
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30
            ) as client:
                for _ in range(5):  # a line each
                    answer = await client.post("/v1/embeddings", json={"input": "the cat"})
                    assert answer.status_code == 200
            ivy.terminate()
            assert await asyncio.wait_for(ivy.wait(), 30) == 0
    finally:
        notified.close()
        await processes.end(ivy)
