"""A service that a suite starts for itself: its port, and waiting until it is ready."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence

START_TIMEOUT_S = 60.0


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_ready(port: int, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Return once /ready answers 200; raise if a process ends or it takes too long."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if any(process.poll() is not None for process in processes):
            raise RuntimeError("a process ended before the service was ready")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready"):
                return
        except urllib.error.URLError:  # not listening yet, or 503
            time.sleep(0.1)
    raise RuntimeError(f"the service was not ready within {START_TIMEOUT_S:.0f} s")
