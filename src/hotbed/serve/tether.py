"""Runs a command that is told to stop (SIGTERM) when the process that started it dies, however.

Started by path in an isolated interpreter, so it imports nothing of Hotbed. It is a program of
its own and not a `preexec_fn` because Python code between fork and exec can deadlock where the
parent has threads (gRPC starts some); the price is one bare interpreter start, some 15 ms.

    python -I -S tether.py PARENT_PID COMMAND [ARGUMENT ...]
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h; the setting survives execve


def main(argv: list[str]) -> None:
    """Become the command; exits with 1 if the parent is gone already."""
    parent, command = int(argv[1]), argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it died before the setting took hold: no signal will come
        sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606  # no shell is wanted


if __name__ == "__main__":
    main(sys.argv)
