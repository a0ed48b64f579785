"""When a child that ended is started again, and when that is pointless. No clock, no asyncio."""

from __future__ import annotations

from dataclasses import dataclass

from hotbed.core.exit_codes import EXIT_CONFIGURATION


@dataclass(frozen=True, slots=True)
class RestartLimits:
    """Bounds of the back-off.

    Attributes:
        first_delay_s: wait before the first restart; doubles with every death.
        max_delay_s: the longest wait.
        healthy_s: a child that was ready this long starts over at `first_delay_s`. Short: the
            pause is there for what cannot stay up, and what has served for a while pays for its
            next start by loading. With faults every 9 s (exponential, starts of 0.5 s) a replica
            is down 48 % of the time with 30 s here, 17 % with 10, 8 % with 5; one that dies every
            second is at `max_delay_s` with any of them.
        max_failed_starts: a child that ends so often in a row without ever having been ready is
            given up. One that was ready once is tried for ever: others may serve meanwhile.
    """

    first_delay_s: float = 0.1
    max_delay_s: float = 10.0
    healthy_s: float = 5.0
    max_failed_starts: int = 5


class RestartPolicy:
    """The history of one child."""

    def __init__(self, limits: RestartLimits) -> None:
        self._limits = limits
        self._delay_s = limits.first_delay_s
        self._was_ready = False
        self._num_failed_starts = 0

    def after_exit(self, exit_code: int, *, ready_for_s: float | None) -> float | None:
        """Seconds to wait before the next start; None to give the child up.

        Args:
            exit_code: of the life that ended; negative for a signal.
            ready_for_s: how long that life had been ready; None if it never was.
        """
        if ready_for_s is not None:
            self._was_ready = True
            if ready_for_s >= self._limits.healthy_s:
                self._delay_s = self._limits.first_delay_s
        elif not self._was_ready:
            self._num_failed_starts += 1
            if exit_code == EXIT_CONFIGURATION:
                return None
            if self._num_failed_starts >= self._limits.max_failed_starts:
                return None
        delay_s = self._delay_s
        self._delay_s = min(2 * delay_s, self._limits.max_delay_s)
        return delay_s
