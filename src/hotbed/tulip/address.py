"""The address Tulip listens on: ``host:port`` or ``unix:/path``."""

from __future__ import annotations

import errno
import re
import socket
import stat
from pathlib import Path

_UNIX = "unix:"
_MAX_UNIX_PATH_BYTES = 107  # sun_path of Linux, less its final NUL
_HOST_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):(\d{1,5})")


def check_address(address: str) -> None:
    """Raise ValueError unless the address is one Tulip can listen on."""
    path = unix_path(address)
    if path is not None:
        if not path.is_absolute():
            raise ValueError(f"listen must be unix:/path with an absolute path, got {address!r}")
        if len(bytes(path)) > _MAX_UNIX_PATH_BYTES:
            raise ValueError(
                f"listen: the socket's path has {len(bytes(path))} bytes, the limit is "
                f"{_MAX_UNIX_PATH_BYTES}"
            )
        return
    match = _HOST_PORT.fullmatch(address)
    if match is None or int(match[1]) > 65535:
        raise ValueError(f"listen must be host:port or unix:/path, got {address!r}")


def unix_path(address: str) -> Path | None:
    """The socket's path of a ``unix:`` address, None of another."""
    return Path(address.removeprefix(_UNIX)) if address.startswith(_UNIX) else None


def remove_stale_socket(address: str) -> None:
    """Remove the socket file that a process which is gone left at a ``unix:`` address.

    Raises:
        OSError: a process listens there, or the file is no socket: nothing is removed. (gRPC
            itself would take a living process's path away.)
    """
    path = unix_path(address)
    if path is None:
        return
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EEXIST, "there is a file that is no socket", str(path))
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # with a full backlog connect would wait
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            pass
    raise OSError(errno.EADDRINUSE, "a process listens there already", str(path))
