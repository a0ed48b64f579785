"""Which replica gets the next chunk: the healthy one with the fewest outstanding tokens.

Pure state: no asyncio, no clock, no network.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lease:
    """Tokens that a replica was given and has not answered yet.

    Attributes:
        replica: index of the replica.
        epoch: how often the replica had come up by then, so that one that went down and came back
            counts as another one.
        tokens: what the lease weighs.
    """

    replica: int
    epoch: int
    tokens: int

    @property
    def key(self) -> tuple[int, int]:
        """Names the replica in this life of it; what `pick` takes as `excluding`."""
        return self.replica, self.epoch


class Balance:
    """Outstanding tokens and health of `num_replicas` replicas, all down at first."""

    def __init__(self, num_replicas: int) -> None:
        self._outstanding = [0] * num_replicas
        self._up = [False] * num_replicas
        self._epoch = [0] * num_replicas
        self._next = 0

    @property
    def num_up(self) -> int:
        return sum(self._up)

    def is_up(self, replica: int) -> bool:
        return self._up[replica]

    def outstanding(self, replica: int) -> int:
        """Tokens given to the replica and not answered yet."""
        return self._outstanding[replica]

    def mark_up(self, replica: int) -> None:
        if not self._up[replica]:
            self._up[replica] = True
            self._epoch[replica] += 1

    def mark_down(self, replica: int) -> None:
        """Take the replica out of the picks; its leases stay until they are released."""
        self._up[replica] = False

    def pick(self, tokens: int, excluding: Collection[tuple[int, int]] = ()) -> Lease | None:
        """Lease `tokens` on the least loaded healthy replica; None if there is none.

        Args:
            tokens: weight of the chunk.
            excluding: keys of leases whose replicas must not be picked again.

        Replicas with equal load take turns.
        """
        best = -1
        num_replicas = len(self._up)
        for step in range(num_replicas):
            replica = (self._next + step) % num_replicas
            if not self._up[replica] or (replica, self._epoch[replica]) in excluding:
                continue
            if best < 0 or self._outstanding[replica] < self._outstanding[best]:
                best = replica
        if best < 0:
            return None
        self._next = (best + 1) % num_replicas
        self._outstanding[best] += tokens
        return Lease(best, self._epoch[best], tokens)

    def release(self, lease: Lease) -> None:
        """Give a lease back, once."""
        self._outstanding[lease.replica] -= lease.tokens
        assert self._outstanding[lease.replica] >= 0, "a lease was released twice: this is a bug"
