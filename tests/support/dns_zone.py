"""A DNS server for tests: `python -m tests.support.dns_zone FILE` answers for one name on port 53.

The file has an IPv4 address a line and is read at each question, so a test changes it and the next
question has the new answer. Without the file the server says SERVFAIL.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

NAME = "tulip.test"


class Zone(asyncio.DatagramProtocol):
    """Answers each datagram."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, sender: Any) -> None:
        reply = answer(dns.message.from_wire(data), self._file)
        self._transport.sendto(reply.to_wire(), sender)


def answer(query: dns.message.Message, file: Path) -> dns.message.Message:
    """What the file says now."""
    reply = dns.message.make_response(query)
    reply.flags |= dns.flags.AA
    question = query.question[0]
    if not file.exists():
        reply.set_rcode(dns.rcode.SERVFAIL)
    elif question.name.to_text(omit_final_dot=True) != NAME:
        reply.set_rcode(dns.rcode.NXDOMAIN)
    elif question.rdtype == dns.rdatatype.A and (addresses := file.read_text().split()):
        reply.answer.append(dns.rrset.from_text(question.name, 0, "IN", "A", *addresses))
    return reply


async def main(file: Path) -> None:
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(lambda: Zone(file), local_addr=("0.0.0.0", 53))
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
