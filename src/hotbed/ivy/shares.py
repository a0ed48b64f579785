"""A bounded number of places, the last of which are kept for tenants that hold few."""

from __future__ import annotations

from collections import Counter

_RESERVE = 8
"""Its eighth of the places is open to a tenant however many others hold; so in Tulip's queue."""


class Shares:
    """Places that tenants take and give back. Without tenants they are a plain bound.

    Args:
        num_places: in all.
    """

    def __init__(self, num_places: int) -> None:
        self._num_places = num_places
        self._reserve = num_places // _RESERVE
        self._of_tenant: Counter[bytes] = Counter()
        self.num_taken = 0

    def take(self, tenant: bytes, amount: int = 1) -> bool:
        """Take places if there are so many for this tenant (empty: nobody in particular).

        While none is taken any amount may be.
        """
        limit = self._num_places
        if tenant and self._of_tenant[tenant] + amount > self._reserve:
            limit -= self._reserve
        if self.num_taken and self.num_taken + amount > limit:
            return False
        self.num_taken += amount
        if tenant:
            self._of_tenant[tenant] += amount
        return True

    def give_back(self, tenant: bytes, amount: int = 1) -> None:
        """Give places back, once for each that was taken."""
        self.num_taken -= amount
        if tenant:
            self._of_tenant[tenant] -= amount
            if not self._of_tenant[tenant]:
                del self._of_tenant[tenant]
