"""Where the cache lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotbed.core.cache_folder import default_cache_folder


def test_the_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_folder() == tmp_path / "hotbed"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which the specification says to ignore
    assert default_cache_folder() == Path.home() / ".cache" / "hotbed"
