"""Takes the port that all Ivy workers will share, before any of them starts."""

from __future__ import annotations

import errno
import socket


class PortError(Exception):
    """The address cannot be used; the message says why and what to do."""


def reserve_port(host: str, port: int) -> socket.socket:
    """Bind the address without listening, so that nobody else can take it while it is held.

    Workers bind it too (SO_REUSEPORT); connections go only to sockets that listen.

    Args:
        host: address or name to listen on.
        port: 0 takes a free one; see the socket's `getsockname`.

    Returns:
        The socket that holds the address until it is closed.

    Raises:
        PortError: the port is taken, the host is not this machine's, or the port needs privileges.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise PortError(f"host {host!r} cannot be resolved: {error.strerror}") from None
    try:
        # With SO_REUSEPORT alone a second service of the same user would silently get half of the
        # connections, so first ask without it. SO_REUSEADDR: old connections do not count.
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            address = probe.getsockname()
        holder = socket.socket(family, kind, protocol)
        try:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            holder.bind(address)
        except OSError:
            holder.close()
            raise
    except OSError as error:
        raise PortError(_explain(error, host, port)) from None
    return holder


def _explain(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is taken; choose another one with --port, or 0 for a free one"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"host {host} is not an address of this machine"
    if error.errno == errno.EACCES:
        return (
            f"port {port} needs privileges that this process does not have; choose one above 1023"
        )
    return f"{host}:{port} cannot be used: {error.strerror}"
