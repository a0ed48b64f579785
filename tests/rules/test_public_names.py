"""What `hotbed` offers can be imported, and importing the rooms without a GPU loads no torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hotbed

ROOMS_WITHOUT_TORCH = ["", ".core", ".checkpoint", ".text", ".wire", ".ivy", ".serve", ".tulip"]


@pytest.mark.parametrize("name", hotbed.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(hotbed, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = hotbed.no_such_name


def test_rooms_without_a_gpu_load_no_torch() -> None:
    """Ivy must start in a moment and fit where torch is not installed."""
    rooms = [f"hotbed{room}" for room in ROOMS_WITHOUT_TORCH]
    code = f"""
import importlib, sys
for room in {rooms!r}:
    importlib.import_module(room)
    heavy = [m for m in ("torch", "transformers", "huggingface_hub") if m in sys.modules]
    assert not heavy, f"import {{room}} loads {{heavy}}"
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
