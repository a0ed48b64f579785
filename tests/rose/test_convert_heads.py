"""bge-m3's heads as they are published, in .pt files: left alone, and converted when asked for."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hotbed.checkpoint.load import load_checkpoint
from hotbed.rose.convert_heads import convert, main
from tests.support.output_models import make_bge_m3


def _as_published(folder: Path) -> Path:
    make_bge_m3(folder)
    for name in ("colbert_linear", "sparse_linear"):
        made = folder / f"{name}.safetensors"
        torch.save(load_file(made), folder / f"{name}.pt")
        made.unlink()
    return folder


def test_a_pickle_is_not_loaded_and_the_log_says_how_to_convert_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = _as_published(tmp_path / "m")
    with caplog.at_level(logging.WARNING):
        checkpoint = load_checkpoint(str(folder))
    assert [kind for kind, _ in checkpoint.outputs] == ["dense", "tokens"]
    assert "sparse_linear.pt is there" in caplog.text
    assert "colbert_linear.pt is there" in caplog.text
    assert f"python -m hotbed.rose.convert_heads {folder}" in caplog.text


def test_converted_heads_are_what_the_pickles_held(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _as_published(tmp_path / "m")
    assert main([str(folder)]) == 0
    assert capsys.readouterr().out.split() == [
        str(folder / f"{name}.safetensors") for name in ("colbert_linear", "sparse_linear")
    ]
    kinds = [kind for kind, _ in load_checkpoint(str(folder)).outputs]
    assert kinds == ["dense", "multi_vector", "sparse", "tokens"]
    held = torch.load(folder / "sparse_linear.pt", weights_only=True)
    made = load_file(folder / "sparse_linear.safetensors")
    np.testing.assert_array_equal(held["weight"].numpy(), made["weight"].numpy())
    assert main([str(folder)]) == 0
    assert "to convert" in capsys.readouterr().out


def test_a_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(1, 2)}, tmp_path / "sparse_linear.pt")
    with pytest.raises(ValueError, match=r"holds \['weight'\]"):
        convert(tmp_path)
