"""Which replica gets the next chunk: the healthy one with the fewest outstanding tokens.

Pure state: no asyncio, no clock, no network. Times are passed in, in seconds of any one clock.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

# A replica that has just come up counts as at least this part of a warm one.
_LEAST_SHARE = 0.1
_LONGEST_EJECTION_FACTOR = 8


@dataclass(frozen=True, slots=True)
class Lease:
    """Tokens that a replica was given and has not answered yet.

    Attributes:
        replica: id of the replica.
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


@dataclass(slots=True)
class _State:
    outstanding: int = 0
    is_up: bool = False
    epoch: int = 0
    up_since: float = 0.0
    is_warm: bool = False
    failures: int = 0
    ejections: int = 0
    ejected_until: float = 0.0


class Balance:
    """Outstanding tokens and health of replicas, all down at first.

    Args:
        slow_start_s: a replica that came up gets a share that grows for so long; 0: all at once.
        eject_after: failures in a row after which a replica is left out for a while.
        ejection_s: for how long at first; doubled each time until it answers again, at most
            eightfold. At most half of the replicas that are up are left out at a time.
    """

    def __init__(
        self, *, slow_start_s: float = 0.0, eject_after: int = 5, ejection_s: float = 5.0
    ) -> None:
        self._slow_start_s = slow_start_s
        self._eject_after = eject_after
        self._ejection_s = ejection_s
        self._replicas: dict[int, _State] = {}
        self._order: list[int] = []
        self._next = 0

    def add(self, replica: int) -> None:
        """Know one more replica, which is down."""
        assert replica not in self._replicas, "a replica was added twice: this is a bug"
        self._replicas[replica] = _State()
        self._order.append(replica)

    def remove(self, replica: int) -> None:
        """Take it out of the picks for good; its leases may still be released."""
        self._order.remove(replica)
        self._replicas[replica].is_up = False
        if self._replicas[replica].outstanding == 0:
            del self._replicas[replica]

    @property
    def num_up(self) -> int:
        return sum(self._replicas[replica].is_up for replica in self._order)

    def is_up(self, replica: int) -> bool:
        return self._replicas[replica].is_up

    def outstanding(self, replica: int) -> int:
        """Tokens given to the replica and not answered yet."""
        return self._replicas[replica].outstanding

    def mark_up(self, replica: int, now: float = 0.0) -> None:
        state = self._replicas[replica]
        if not state.is_up:
            state.is_up = True
            state.epoch += 1
            state.up_since = now
            state.is_warm = self._slow_start_s <= 0
            state.failures = state.ejections = 0
            state.ejected_until = 0.0

    def mark_down(self, replica: int) -> None:
        """Take the replica out of the picks; its leases stay until they are released."""
        self._replicas[replica].is_up = False

    def pick(
        self, tokens: int, excluding: Collection[tuple[int, int]] = (), now: float = 0.0
    ) -> Lease | None:
        """Lease `tokens` on the least loaded healthy replica; None if there is none.

        Args:
            tokens: weight of the chunk.
            excluding: keys of leases whose replicas must not be picked again.
            now: the time.

        Replicas with equal load take turns. Ejected ones are picked only where no other is left.
        """
        best, best_load, best_at = -1, 0.0, 0
        spare, spare_load, spare_at = -1, 0.0, 0
        num_replicas = len(self._order)
        for step in range(num_replicas):
            at = (self._next + step) % num_replicas
            replica = self._order[at]
            state = self._replicas[replica]
            if not state.is_up or (replica, state.epoch) in excluding:
                continue
            load = state.outstanding + tokens if state.is_warm else self._load(state, tokens, now)
            if state.ejected_until > now:
                if spare < 0 or load < spare_load:
                    spare, spare_load, spare_at = replica, load, at
            elif best < 0 or load < best_load:
                best, best_load, best_at = replica, load, at
        if best < 0:
            best, best_at = spare, spare_at
        if best < 0:
            return None
        self._next = (best_at + 1) % num_replicas
        state = self._replicas[best]
        state.outstanding += tokens
        return Lease(best, state.epoch, tokens)

    def _load(self, state: _State, tokens: int, now: float) -> float:
        """Tokens that it would have outstanding, as if its share were a whole."""
        share = (now - state.up_since) / self._slow_start_s
        if share >= 1:
            state.is_warm = True
            share = 1.0
        return (state.outstanding + tokens) / max(share, _LEAST_SHARE)

    def release(self, lease: Lease) -> None:
        """Give a lease back, once."""
        state = self._replicas[lease.replica]
        state.outstanding -= lease.tokens
        assert state.outstanding >= 0, "a lease was released twice: this is a bug"
        if state.outstanding == 0 and lease.replica not in self._order:
            del self._replicas[lease.replica]

    def succeeded(self, lease: Lease) -> None:
        """The replica answered as it should."""
        state = self._replicas[lease.replica]
        state.failures = state.ejections = 0

    def failed(self, lease: Lease, now: float = 0.0) -> bool:
        """The replica failed; whether it is therefore left out from now on for a while."""
        state = self._replicas[lease.replica]
        if not state.is_up or state.epoch != lease.epoch or state.ejected_until > now:
            return False
        state.failures += 1
        if state.failures < self._eject_after:
            return False
        states = [self._replicas[replica] for replica in self._order]
        num_out = sum(s.is_up and s.ejected_until > now for s in states)
        if 2 * (num_out + 1) > self.num_up:
            return False
        factor = min(2**state.ejections, _LONGEST_EJECTION_FACTOR)
        state.ejections += 1
        # The next failure after it ejects it again.
        state.failures = self._eject_after - 1
        state.ejected_until = now + self._ejection_s * factor
        return True

    def is_ejected(self, replica: int, now: float) -> bool:
        """Whether it is left out now."""
        return self._replicas[replica].ejected_until > now
