"""Which decoders take the kernels of small steps."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from hotbed.rose.attention.sdpa import SdpaBackend
from hotbed.rose.models import decoder
from tests.rose.layers.test_fused import QWEN3


@pytest.mark.parametrize(
    ("changes", "small"),
    [
        ({}, True),
        ({"is_causal": False}, True),
        ({"qk_norm": False}, False),
        ({"qk_norm": False, "qkv_bias": True}, False),
        ({"qkv_bias": True}, False),
        ({"qk_norm": False, "window": 2}, False),
    ],
    ids=["qwen3", "pplx", "llama", "qwen2", "qwen3 with biases", "mistral"],
)
def test_layers_that_are_not_qwen3s_never_take_the_kernels_of_small_steps(
    changes: dict[str, Any], small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        decoder, "small_decoder", lambda layers, *rest, **more: asked.append(len(layers))
    )
    config = msgspec.structs.replace(QWEN3, **changes)
    weights = {
        name: torch.ones(parameter.shape)
        for name, parameter in decoder.weight_map(config).parameters.items()
    }
    decoder.build(config, weights, [SdpaBackend()])
    assert asked == ([config.num_hidden_layers] if small else [])
