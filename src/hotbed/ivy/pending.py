"""How many tokens of a model's requests are on their way: the gateway's own bound on its queue."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.wire.errors import RETRY_AFTER_S


class PendingTokens:
    """Tokens of one model's requests in this process, from tokenising to the last row.

    Replicas bound their own queues; of a large request most chunks wait here, in the gateway.

    Args:
        limit: past it a request is refused before any of it travels.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    @contextlib.contextmanager
    def hold(self, num_tokens: int) -> Iterator[None]:
        """Count the tokens while the context is open; a lone request always fits.

        Raises:
            HotbedError: OVERLOADED with both numbers.
        """
        if self.held and self.held + num_tokens > self._limit:
            raise HotbedError(
                ErrorCode.OVERLOADED,
                f"{self.held} tokens of other requests are pending in this gateway and this one "
                f"has {num_tokens}; the limit is {self._limit} (max_pending_tokens). Try again "
                "later.",
                retry_after_s=RETRY_AFTER_S,
            )
        self.held += num_tokens
        try:
            yield
        finally:
            self.held -= num_tokens
