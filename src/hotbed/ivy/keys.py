"""API keys: a file of hashes, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path

from hotbed.core.errors import invalid
from hotbed.ivy.errors import HttpError

_LINE = re.compile(r"([0-9a-fA-F]{64})(?:\s+(.*))?")


class ApiKeys:
    """The keys that are let in.

    Args:
        hashes: SHA-256 of each key.
    """

    def __init__(self, hashes: list[bytes]) -> None:
        self._hashes = hashes

    @staticmethod
    def read(path: Path) -> ApiKeys:
        """Keys of a file with the SHA-256 of one key a line, in hex, and any words after it.

        ``#`` begins a comment. A line comes from ``printf %s "$KEY" | sha256sum``: keys of 32
        random characters need no slow hash.

        Raises:
            HotbedError: INVALID_INPUT naming the file and the line.
        """
        try:
            lines = path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise invalid(f"{path} cannot be read: {error}") from None
        hashes = []
        for number, line in enumerate(lines, start=1):
            text = line.partition("#")[0].strip()
            if not text:
                continue
            match = _LINE.fullmatch(text)
            if match is None:
                # The line may hold a key by mistake: it is not shown.
                raise invalid(f"{path}, line {number}: a SHA-256 in 64 hex digits is expected")
            hashes.append(bytes.fromhex(match[1]))
        if not hashes:
            raise invalid(f"{path} holds no key: nobody would be let in")
        return ApiKeys(hashes)

    def check(self, headers: dict[bytes, bytes]) -> None:
        """Raises HttpError 401 unless ``Authorization: Bearer`` or ``X-Api-Key`` has a good key."""
        given = hashlib.sha256(given_key(headers)).digest()
        is_good = False
        for known in self._hashes:  # all of them, so that the time tells nothing
            is_good |= hmac.compare_digest(given, known)
        if not is_good:
            raise HttpError(
                401,
                "invalid_api_key",
                "A good API key is needed: Authorization: Bearer KEY, or X-Api-Key: KEY.",
                ((b"www-authenticate", b"Bearer"),),
            )


def given_key(headers: dict[bytes, bytes]) -> bytes:
    """The key in ``Authorization: Bearer`` or else ``X-Api-Key``; empty without one."""
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"bearer" or not key:
        key = headers.get(b"x-api-key", b"")
    return key.strip()
