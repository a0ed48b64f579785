"""Where the children's lines and the supervisor's remarks go."""

from __future__ import annotations

import signal
import sys


class OutputLog:
    """Writes ``name | line`` to standard error, at once.

    When nobody reads it any more, the service is asked to stop, as by a terminal that hangs up;
    what is said after that is dropped, so that children never block on a full pipe.
    """

    def __init__(self) -> None:
        self._is_broken = False

    def write_line(self, name: str, line: str) -> None:
        """One line of whoever `name` is."""
        if self._is_broken:
            return
        try:
            sys.stderr.write(f"{name} | {line}\n")
            sys.stderr.flush()
        except BrokenPipeError:
            self._is_broken = True
            signal.raise_signal(signal.SIGHUP)
        except OSError:
            return  # a full disk, say: a line is lost, and the service goes on
