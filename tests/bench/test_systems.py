"""Which version of a system a row names."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import hotbed
from hotbed.bench.systems import System, installed_version, system


def version_of(found: System, path: str = "") -> str | None:
    return installed_version(found, sys.executable, os.environ | {"PYTHONPATH": path})


def test_a_package_has_the_version_it_was_installed_with() -> None:
    source = str(Path(hotbed.__file__).parents[1])
    assert version_of(system("hotbed"), source) == hotbed.__version__


@pytest.mark.parametrize(("line", "version"), [("__version__ = '7.1'", "7.1"), ("", "unknown")])
def test_a_folder_on_the_path_has_the_version_its_module_names(
    line: str, version: str, tmp_path: Path
) -> None:
    (tmp_path / "a_system_nobody_has.py").write_text(line)
    found = System("a-system-nobody-has", "a_system_nobody_has")
    assert version_of(found, str(tmp_path)) == version
    assert version_of(found) is None, "without the folder it is not there"
