"""How many tokens of a model's requests are on their way: the gateway's own bound on its queue."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hotbed.core.errors import ErrorCode, HotbedError
from hotbed.ivy.shares import Shares
from hotbed.wire.errors import RETRY_AFTER_S


class PendingTokens:
    """Tokens of one model's requests in this process, from tokenising to the last row.

    Replicas bound their own queues; of a large request most chunks wait here, in the gateway.

    Args:
        limit: past it a request is refused before any of it travels.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._shares = Shares(limit)

    @property
    def held(self) -> int:
        """Tokens counted now."""
        return self._shares.num_taken

    @contextlib.contextmanager
    def hold(self, num_tokens: int, tenant: bytes = b"") -> Iterator[None]:
        """Count the tokens while the context is open; a lone request always fits.

        The last eighth of the limit is kept for tenants that hold no more than that.

        Raises:
            HotbedError: OVERLOADED with both numbers.
        """
        if not self._shares.take(tenant, num_tokens):
            raise HotbedError(
                ErrorCode.OVERLOADED,
                f"{self.held} tokens of other requests are pending in this gateway and this one "
                f"has {num_tokens}; the limit is {self._limit} (max_pending_tokens). Try again "
                "later.",
                retry_after_s=RETRY_AFTER_S,
            )
        try:
            yield
        finally:
            self._shares.give_back(tenant, num_tokens)
