"""Weights that are published as pickles, such as bge-m3's: left alone, and converted when asked."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hotbed import Embedder
from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.errors import HotbedError
from hotbed.rose.convert_weights import convert, main
from tests.support.families import make_family
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
    assert f"python -m hotbed.rose.convert_weights {folder}" in caplog.text


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


@pytest.mark.parametrize("sharded", [False, True])
def test_weights_of_all_modules_are_what_the_pickles_held(sharded: bool, tmp_path: Path) -> None:
    """bge-m3, LaBSE and many older models are published so, and could not be served at all."""
    dense = [(48, "activation.Tanh", True)]
    folder = make_family(tmp_path / "m", "bert", sharded=sharded, dense=dense)
    texts = ["the cat", "a document"]
    with Embedder(str(folder), device="cpu", num_threads=1) as embedder:
        expected = embedder.embed(texts)
    for place in (folder, folder / "2_Dense"):
        _pickle(place)
    with pytest.raises(HotbedError, match="convert_weights"):
        load_checkpoint(str(folder))
    assert main([str(folder)]) == 0
    with Embedder(str(folder), device="cpu", num_threads=1) as embedder:
        np.testing.assert_array_equal(embedder.embed(texts), expected)


def test_tied_tensors_are_written_twice(tmp_path: Path) -> None:
    """A masked language model's pickle holds its embedding again as the decoder."""
    folder = make_family(tmp_path / "m", "bert", sharded=False)
    held = load_file(folder / "model.safetensors")
    held["cls.predictions.decoder.weight"] = held["embeddings.word_embeddings.weight"]
    torch.save(held, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert convert(folder) == [folder / "model.safetensors"]
    assert load_checkpoint(str(folder)).tensors


def test_a_pickle_of_anything_but_tensors_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"weight": torch.zeros(1), "epoch": 3}, tmp_path / "pytorch_model.bin")
    assert main([str(tmp_path)]) == 1
    assert "not tensors by name alone" in capsys.readouterr().err
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(_Bomb(), protocol=2))
    assert main([str(tmp_path)]) == 1
    assert "holds more than weights" in capsys.readouterr().err


class _Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return exec, ("raise SystemExit('the pickle ran')",)


def _pickle(folder: Path) -> None:
    """Put pytorch_model.bin, or its shards and index, in the place of the safetensors."""
    for file in sorted(folder.glob("*.safetensors")):
        name = f"pytorch_{file.stem}.bin"
        torch.save(load_file(file), folder / name)
        file.unlink()
    index = folder / "model.safetensors.index.json"
    if index.exists():
        text = index.read_text().replace("model-", "pytorch_model-")
        (folder / "pytorch_model.bin.index.json").write_text(text.replace("safetensors", "bin"))
        index.unlink()
