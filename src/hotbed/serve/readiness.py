"""Receives a child's word that it is ready: the listening end of `hotbed.core.notify`."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path

from hotbed.core.notify import READY

_MAX_STATE_BYTES = 4096


class ReadyListener:
    """The notify socket of one life of one child.

    Args:
        path: where to create the socket; in a private folder, since whoever can write to it is
            believed.
        on_ready: called once, when the child says that it is ready.

    Raises:
        OSError: the socket cannot be created, e.g. because the path is longer than 107 bytes.
    """

    def __init__(self, path: Path, on_ready: Callable[[], None]) -> None:
        self._path = path
        self._on_ready = on_ready
        self._ready_at: float | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.bind(str(path))
        except OSError:
            self._socket.close()
            raise
        asyncio.get_running_loop().add_reader(self._socket, self._on_readable)

    @property
    def address(self) -> str:
        """What the child finds in NOTIFY_SOCKET."""
        return str(self._path)

    @property
    def ready_for_s(self) -> float | None:
        """Seconds since the child said that it was ready; None if it has not."""
        return None if self._ready_at is None else time.monotonic() - self._ready_at

    def close(self) -> None:
        """Stop listening; call once."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._path.unlink()

    def _on_readable(self) -> None:
        state = self._socket.recv(_MAX_STATE_BYTES)
        if READY.encode() in state.splitlines() and self._ready_at is None:
            self._ready_at = time.monotonic()
            self._on_ready()
