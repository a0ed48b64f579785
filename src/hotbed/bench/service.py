"""A service that is started for measuring: a free port, and waiting until it answers."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence

START_TIMEOUT_S = 60.0
_PAUSE_S = 0.1
_ANSWER_TIMEOUT_S = 5.0


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def any_ended(processes: Sequence[subprocess.Popen[bytes]]) -> Callable[[], bool]:
    """What `wait_until_ready` asks of these processes."""
    return lambda: any(process.poll() is not None for process in processes)


def wait_until_ready(
    url: str, has_ended: Callable[[], bool], *, timeout_s: float = START_TIMEOUT_S
) -> None:
    """Return once `url` answers with 200.

    Raises:
        RuntimeError: a process ended first, as `has_ended` says, or it takes too long.
    """
    # A proxy that the environment names is not asked for what runs here.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if has_ended():
            raise RuntimeError("a process ended before the service was ready")
        try:
            with opener.open(url, timeout=_ANSWER_TIMEOUT_S):
                return
        except OSError:  # not listening yet, slow, or 503
            # Somebody else's server: there is nothing but asking again.
            time.sleep(_PAUSE_S)
    raise RuntimeError(f"the service was not ready within {timeout_s:.0f} s")
