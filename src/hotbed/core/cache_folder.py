"""Where Hotbed keeps what it made for this machine and can make again."""

from __future__ import annotations

import os
from pathlib import Path


def default_cache_folder() -> Path:
    """``hotbed`` in the user's cache folder, as the XDG base directory specification has it.

    Read here and not in a settings record: it is the user's convention for all programs.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "hotbed"
