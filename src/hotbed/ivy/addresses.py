"""How settings say where replicas are: addresses, DNS names, files. Looks nothing up."""

from __future__ import annotations

from dataclasses import dataclass

DNS, FILE = "dns:", "file:"


@dataclass(frozen=True, slots=True)
class DnsName:
    """Every address that the name has is a replica."""

    host: str
    port: int


def parse_dns(entry: str) -> DnsName:
    """``dns:host:port``. Raises ValueError."""
    host, separator, port = entry.removeprefix(DNS).removeprefix("///").rpartition(":")
    if not separator or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"replicas: {entry!r} must have the form dns:host:port")
    return DnsName(host, int(port))


def is_fixed(entry: str) -> bool:
    """Whether the entry is an address, which never changes."""
    return not entry.startswith((DNS, FILE))


def check_entry(entry: str) -> None:
    """Raises ValueError for an entry that can never give an address."""
    if entry.startswith(DNS):
        parse_dns(entry)
    elif entry.startswith(FILE) and not entry.removeprefix(FILE):
        raise ValueError(f"replicas: {entry!r} names no file")
    elif not entry.strip():
        raise ValueError("replicas: an address is empty")
