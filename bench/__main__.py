"""The developers' own suites; `hotbed bench` measures beside other systems.

All suites for a CPU, one after another: `python -m bench [--out FILE]`; some ten minutes.

Quality on your own data is `python -m bench.quality`; bulk jobs `python -m bench.bulk`, on a Ray
cluster `bench.bulk_ray`, on a card `bench.bulk_card`, their memory `bench.bulk_memory`, killed
`bench.bulk_kill`. The GPU engine: `python -m bench.engine`, whether its host keeps ahead `python -m
bench.overlap`, what the card's power limit leaves `bench.power`, random batches `bench.soak`. The
order in which Tulip fills its steps, on a simulated clock: `python -m bench.scheduler`. A service
whose replicas fail, hang and are killed: `python -m bench.chaos`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

SUITES = ("cpu", "added_latency", "ivy_overhead", "tulip_overhead")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="results file that every suite appends to")
    arguments = parser.parse_args()
    options = ["--out", arguments.out] if arguments.out else []
    for suite in SUITES:
        # A process each: thread pools and allocators of one must not touch the next.
        subprocess.run([sys.executable, "-m", f"bench.{suite}", *options], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
