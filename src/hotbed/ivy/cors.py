"""Cross-origin requests from browsers (https://fetch.spec.whatwg.org/#http-cors-protocol)."""

from __future__ import annotations

from collections.abc import Collection

from hotbed.ivy.http import Headers

_MAX_AGE_S = b"600"
_EXPOSED = b"x-request-id, x-hotbed-fingerprint, server-timing, retry-after"


class Cors:
    """Headers for the origins that may read answers; ``*`` is any origin."""

    def __init__(self, origins: Collection[str]) -> None:
        self._any = "*" in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def headers(self, request: dict[bytes, bytes]) -> Headers:
        """What is added to every answer."""
        origin = request.get(b"origin")
        if origin is None or not (self._any or origin in self._origins):
            return () if self._any else ((b"vary", b"origin"),)
        allowed = b"*" if self._any else origin
        found = [
            (b"access-control-allow-origin", allowed),
            (b"access-control-expose-headers", _EXPOSED),
        ]
        if not self._any:
            found.append((b"vary", b"origin"))
        return found

    def preflight(self, request: dict[bytes, bytes], methods: Collection[str]) -> Headers:
        """What is added to an answer to OPTIONS, beside `headers`, if it is a preflight."""
        if b"access-control-request-method" not in request or not self.headers(request):
            return ()
        asked = request.get(b"access-control-request-headers", b"content-type")
        return (
            (b"access-control-allow-methods", ", ".join(methods).encode()),
            (b"access-control-allow-headers", asked),
            (b"access-control-max-age", _MAX_AGE_S),
        )
