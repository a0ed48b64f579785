"""HTTP pieces that know nothing of embeddings: headers, reading a body, sending an answer."""

from __future__ import annotations

import re
import zlib
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotbed.core.errors import ErrorCode, HotbedError, invalid
from hotbed.ivy.tracing import Stages

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

JSON_TYPE = (b"content-type", b"application/json")
CLOSE = (b"connection", b"close")

# Of a body that is too large so much is still read and thrown away, because most clients look for
# the answer only after they have sent all.
MAX_DISCARDED_BYTES = 64 * 1024 * 1024

_SANE_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer; `headers` without content-length."""

    status: int
    body: bytes
    headers: Headers = (JSON_TYPE,)
    stages: Stages | None = None
    """When the stages of the work were; for traces."""


async def send_reply(send: Send, reply: Reply, more_headers: Headers = ()) -> None:
    """Send the answer; for HEAD the server leaves the body out."""
    headers = [*reply.headers, *more_headers]
    if reply.status != 204:  # which must not have one (RFC 9110, 8.6)
        headers.append((b"content-length", b"%d" % len(reply.body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


def sane_request_id(value: bytes | None) -> bytes | None:
    """The client's request id if it is short and plain enough to be echoed, else None."""
    return value if value is not None and _SANE_REQUEST_ID.fullmatch(value) else None


class BodyBudget:
    """Bytes of bodies held at a time in this process."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.held_bytes = 0

    def take(self, num_bytes: int) -> None:
        """Raises OVERLOADED if that would be too much; a single body always fits an idle one."""
        if self.held_bytes and self.held_bytes + num_bytes > self._max_bytes:
            raise HotbedError(
                ErrorCode.OVERLOADED,
                f"The gateway holds {self.held_bytes} bytes of other requests' bodies now; "
                f"its limit is {self._max_bytes}. Try again later.",
                retry_after_s=1.0,
            )
        self.held_bytes += num_bytes

    def give_back(self, num_bytes: int) -> None:
        self.held_bytes -= num_bytes


async def read_body(
    receive: Receive, headers: dict[bytes, bytes], *, max_bytes: int, budget: BodyBudget
) -> bytes:
    """The whole body as it came. Its length is taken from the budget; the caller gives it back.

    Raises:
        HotbedError: TOO_LARGE past `max_bytes`, after the rest (up to MAX_DISCARDED_BYTES) was
            read and thrown away; OVERLOADED if the budget is used up; CANCELLED if the client
            leaves before the end. The budget is then as before.
    """
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared) > max_bytes:
        await _discard(receive)
        raise _too_large(max_bytes)
    parts: list[bytes] = []
    num_bytes = 0
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise HotbedError(
                    ErrorCode.CANCELLED, "The client left before its body was complete."
                )
            part: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            if num_bytes + len(part) > max_bytes:
                if more:
                    await _discard(receive)
                raise _too_large(max_bytes)
            budget.take(len(part))
            num_bytes += len(part)
            parts.append(part)
            if not more:
                return part if len(parts) == 1 else b"".join(parts)
    except BaseException:
        budget.give_back(num_bytes)
        raise


async def _discard(receive: Receive) -> None:
    num_bytes = 0
    while num_bytes < MAX_DISCARDED_BYTES:
        message = await receive()
        num_bytes += len(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return


def _too_large(max_bytes: int) -> HotbedError:
    return HotbedError(
        ErrorCode.TOO_LARGE,
        f"The body is larger than {max_bytes} bytes (max_body_bytes); send fewer inputs at a time.",
    )


def decompress(body: bytes, encoding: bytes, *, max_bytes: int) -> bytes:
    """Body of content encoding ``gzip`` or ``deflate`` (RFC 9110, 8.4.1; deflate also raw).

    Raises:
        HotbedError: TOO_LARGE past `max_bytes` decompressed, INVALID_INPUT if corrupt or cut off.
    """
    if encoding == b"gzip":
        window_bits = 16 + zlib.MAX_WBITS
    else:
        # Some clients send deflate without the zlib header, whose first byte is 0x?8.
        has_header = body[:1] != b"" and body[0] & 0x0F == 8
        window_bits = zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS
    decoder = zlib.decompressobj(window_bits)
    try:
        decoded = decoder.decompress(body, max_bytes + 1)
    except zlib.error:
        raise invalid(f"The body is not valid {encoding.decode()} data.") from None
    if len(decoded) > max_bytes:
        raise _too_large(max_bytes)
    if not decoder.eof:
        raise invalid(f"The body's {encoding.decode()} data ends too early.")
    if decoder.unused_data:
        raise invalid(f"There are bytes after the body's {encoding.decode()} data.")
    return decoded
