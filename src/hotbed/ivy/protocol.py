"""uvicorn's HTTP/1.1 protocol with a bound on headers and JSON for what it refuses itself."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hotbed.ivy.errors import HttpError, error_reply
from hotbed.ivy.http import CLOSE

# Far above what clients send, and what proxies allow (8 to 16 KiB in all).
MAX_HEADER_BYTES = 32 * 1024
# Time for the first request's headers, so that connections that say nothing do not pile up.
HEADER_TIMEOUT_S = 30.0


class _HeadersTooLargeError(Exception):
    """Ends the parser: it reports a failed callback, and the connection is refused."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Requests whose line and headers are over MAX_HEADER_BYTES get 431."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._is_in_head = True
        self._num_head_bytes = 0
        self._is_too_large = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEADER_TIMEOUT_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._num_head_bytes += len(data)
        super().data_received(data)
        # The parser holds a line until its end: without this an endless one would fill the memory.
        if self._is_in_head and self._num_head_bytes > MAX_HEADER_BYTES:
            self._is_too_large = True
            self.send_400_response("")

    def on_message_begin(self) -> None:
        # What was read with it is counted already, or is the rest of a read after another request.
        self._is_in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        if self._timer is not None:
            self._stop_timer()
        # Only a large read can hold large headers: most requests are not looked at.
        if self._num_head_bytes > MAX_HEADER_BYTES:
            num_bytes = len(self.url) + sum(len(n) + len(v) for n, v in self.headers)
            if num_bytes > MAX_HEADER_BYTES:
                self._is_too_large = True
                raise _HeadersTooLargeError
        self._num_head_bytes = 0
        super().on_headers_complete()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP, or too much of it, is refused in the form of every other error."""
        if self.transport.is_closing():
            return
        if self._is_too_large:
            error = HttpError(
                431,
                "headers_too_large",
                f"The request line and headers are over {MAX_HEADER_BYTES} bytes.",
                (CLOSE,),
            )
            status = b"431 Request Header Fields Too Large"
        else:
            error = HttpError(400, "invalid_http", "This is not valid HTTP/1.1.", (CLOSE,))
            status = b"400 Bad Request"
        reply = error_reply(error)
        headers = [*reply.headers, (b"content-length", b"%d" % len(reply.body))]
        head = b"".join(b"%s: %s\r\n" % header for header in headers)
        self.transport.write(b"HTTP/1.1 " + status + b"\r\n" + head + b"\r\n" + reply.body)
        self.transport.close()
