"""How many cores this process may use, which in a container is fewer than the machine has."""

from __future__ import annotations

import os
from pathlib import Path

_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")  # of control groups v2, as a container sees its own


def num_usable_cores(cpu_max: Path = _CPU_MAX) -> int:
    """Cores that the process may run on, cut to the container's CPU quota; at least 1.

    With a thread a core of a large machine and a quota of two, threads spend their time stopped.
    Format of the file: https://docs.kernel.org/admin-guide/cgroup-v2.html, "cpu.max".
    """
    num_cores = len(os.sched_getaffinity(0))
    if not cpu_max.exists():
        return num_cores
    quota_us, period_us = cpu_max.read_text().split()
    if quota_us == "max":
        return num_cores
    return max(1, min(num_cores, int(quota_us) // int(period_us)))
