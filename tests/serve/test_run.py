"""`hotbed serve` as a process, up to the point where it needs a model."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest


def serve(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hotbed.cli", "serve", *options],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )


def test_taken_port_is_told_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run = serve("--port", str(port))
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.startswith(f"serve | port {port} of 127.0.0.1 is taken")
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--worker-ports", "65535", "--workers", "2"], "there is none above 65535"),
        (["--host", "203.0.113.7"], "is not an address of this machine"),
    ],
)
def test_settings_that_do_not_fit_are_told_before_anything_starts(
    options: list[str], message: str
) -> None:
    run = serve("--port", "0", *options)
    assert run.returncode == 2
    assert message in run.stderr
    assert run.stderr.count("\n") == 1
