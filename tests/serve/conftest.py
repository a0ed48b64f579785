from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """A private folder with a short name: a Unix socket's path holds 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="hb-") as name:
        yield Path(name)
