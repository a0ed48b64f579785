"""Tells whoever started this process how far it is, by the sd_notify protocol.

`hotbed serve` listens for it, and so does systemd for a unit of Type=notify: one datagram to the
socket named in NOTIFY_SOCKET, no library needed.
Protocol: https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import os
import socket

READY = "READY=1"


def notify(state: str = READY) -> None:
    """Send `state`; does nothing where nobody asked for it (NOTIFY_SOCKET unset or empty).

    Raises:
        OSError: the socket named cannot be reached, so nobody would learn of it.
    """
    # Not a setting of ours: a convention of the process that started us, and never the user's.
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # an abstract socket, as systemd writes it
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(address)
        sender.sendall(state.encode())
