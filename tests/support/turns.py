"""Turns of tests that run in several processes: one marked `alone` runs while no other does.

A test holds the file `running`: with all others, or for itself. Whoever wants it waits for it
holding the file `next`, so that tests that share cannot keep one that is alone waiting for ever.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Hold a turn; the processes of a run give the same folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "running").open("w") as running:
        with (folder / "next").open("w") as following:
            fcntl.flock(following, fcntl.LOCK_EX)
            fcntl.flock(running, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        try:
            yield
        finally:
            # Closing alone would leave it with a child that the test forked.
            fcntl.flock(running, fcntl.LOCK_UN)
