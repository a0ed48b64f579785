"""The addresses that DNS names and files give now."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

from hotbed.ivy.addresses import DNS, FILE, DnsName, is_fixed, parse_dns


async def resolve(entries: Sequence[str]) -> list[str]:
    """The gRPC addresses that the entries mean now, each once, in a stable order.

    Args:
        entries: ``host:port`` and ``unix:/path`` as they are; ``dns:host:port`` for all addresses
            of a name; ``file:/path`` for a file with an address a line (``#`` begins a comment).

    Raises:
        OSError: a name cannot be resolved, or a file cannot be read.
        ValueError: a file holds what is no fixed address.
    """
    found: list[str] = []
    for entry in entries:
        if entry.startswith(DNS):
            found.extend(await _ask_dns(parse_dns(entry)))
        elif entry.startswith(FILE):
            path = Path(entry.removeprefix(FILE))
            found.extend(_parse_file(await asyncio.to_thread(path.read_text)))
        else:
            found.append(entry)
    return list(dict.fromkeys(found))


async def _ask_dns(name: DnsName) -> list[str]:
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(name.host, name.port, type=socket.SOCK_STREAM)
    addresses = sorted({str(info[4][0]) for info in infos})
    return [f"[{a}]:{name.port}" if ":" in a else f"{a}:{name.port}" for a in addresses]


def _parse_file(text: str) -> list[str]:
    entries = [line.partition("#")[0].strip() for line in text.splitlines()]
    addresses = [entry for entry in entries if entry]
    for address in addresses:
        if not is_fixed(address):
            raise ValueError(f"a file of replicas holds {address!r}: only addresses may be there")
    return addresses
