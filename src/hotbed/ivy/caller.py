"""Who asks: until when the answer is wanted, and with whom the request takes turns."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from hotbed.ivy.keys import given_key

_TENANT_BYTES = 8


@dataclass(frozen=True, slots=True)
class Caller:
    """What of a request's sender goes with its chunks.

    Attributes:
        deadline: event loop time after which nobody wants the answer.
        tenant: requests of one tenant share its turns at the replicas; empty: all of this gateway
            share one.
    """

    deadline: float
    tenant: bytes = b""


class Tenants:
    """Tells tenants apart, by a header or by API key, as hashes: no name or key leaves the gateway.

    Args:
        header: its value names the tenant; None: the key does.
        by_key: requests have API keys, which were checked.
    """

    def __init__(self, header: str | None, *, by_key: bool) -> None:
        self._header = None if header is None else header.lower().encode("latin-1")
        self._by_key = by_key

    def of(self, headers: dict[bytes, bytes]) -> bytes:
        """The tenant of a request; empty if nothing tells."""
        name = b"" if self._header is None else headers.get(self._header, b"")
        if not name and self._by_key:
            name = given_key(headers)
        return hashlib.blake2b(name, digest_size=_TENANT_BYTES).digest() if name else b""
