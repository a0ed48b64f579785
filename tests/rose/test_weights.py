"""Loading: names, fusing, and what a person reads when files and config do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from hotbed.checkpoint.load import load_checkpoint
from hotbed.core.errors import HotbedError
from hotbed.rose.attention.select import AttentionSettings
from hotbed.rose.engine import RoseEngine
from hotbed.rose.models import bert_weights, decoder
from hotbed.rose.weights import load_weights
from tests.support.checkpoints import edit_json, make_bert, make_qwen3, save_tensors

CPU = torch.device("cpu")


def _load(folder: Path, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    checkpoint = load_checkpoint(str(folder))
    family = {"bert": bert_weights, "decoder": decoder}[checkpoint.family]
    return load_weights(checkpoint, family.weight_map(checkpoint.config), dtype=dtype, device=CPU)


def test_qkv_is_stacked_in_the_order_query_key_value(bert_folder: Path) -> None:
    stored = load_file(bert_folder / "model.safetensors")
    parts = [
        stored[f"encoder.layer.1.attention.self.{n}.weight"] for n in ("query", "key", "value")
    ]
    got = _load(bert_folder)["layers.1.qkv.weight"]
    np.testing.assert_array_equal(got.numpy(), np.concatenate(parts))


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("prefix", ["", "model."])
def test_every_layout_of_the_files_gives_the_same_weights(
    tmp_path: Path, qwen3_folder: Path, sharded: bool, prefix: str
) -> None:
    made = _load(make_qwen3(tmp_path / "m", sharded=sharded, prefix=prefix))
    expected = _load(qwen3_folder)
    assert made.keys() == expected.keys()
    assert all(torch.equal(made[name], expected[name]) for name in made)


def test_half_precision_files_compute_in_fp32_on_a_cpu(tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "m", dtype="bfloat16")
    engine = RoseEngine.load(load_checkpoint(str(folder)))
    assert engine.info.dtype == "float32"
    assert {t.dtype for t in _load(folder).values()} == {torch.float32}
    engine.close()


def test_old_layer_norm_names_are_understood(tmp_path: Path, bert_folder: Path) -> None:
    folder = make_bert(tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    renamed = {
        n.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): t
        for n, t in tensors.items()
    }
    save_tensors(folder / "model.safetensors", renamed)
    expected = _load(bert_folder)
    assert all(torch.equal(t, expected[name]) for name, t in _load(folder).items())


def test_missing_and_surplus_tensors_are_named(tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    tensors["encoder.layer.0.extra.weight"] = tensors.pop("encoder.layer.1.output.dense.bias")
    save_tensors(folder / "model.safetensors", tensors)
    with pytest.raises(HotbedError) as caught:
        _load(folder)
    assert "1 missing: encoder.layer.1.output.dense.bias" in caught.value.message
    assert "1 not known to the model: encoder.layer.0.extra.weight" in caught.value.message


def test_a_shape_that_does_not_fit_config_is_named(tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "m")
    edit_json(folder / "config.json", intermediate_size=96)
    with pytest.raises(HotbedError, match=r"intermediate\.dense\.weight has shape \[128, 64\]"):
        _load(folder)


def test_integer_weights_are_refused(tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    name = "encoder.layer.0.output.dense.weight"
    tensors[name] = np.zeros(tensors[name].shape, dtype=np.int8)
    from safetensors.numpy import save_file

    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(HotbedError, match="stored as I8; supported are F64, F32, F16, BF16"):
        _load(folder)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"device": "tpu"}, "device 'tpu' is not supported; supported: auto, cpu, cuda, cuda:N"),
        ({"device": "cuda:9"}, "device 'cuda:9': "),
        ({"dtype": "float16"}, "dtype 'float16' is unknown; there are: auto, float32, bfloat16"),
        ({"attention": AttentionSettings(name="fa9")}, "attention backend 'fa9' is unknown"),
    ],
)
def test_unknown_options_are_refused(
    bert_folder: Path, option: dict[str, Any], message: str
) -> None:
    with pytest.raises(HotbedError, match=message):
        RoseEngine.load(load_checkpoint(str(bert_folder)), **option)
