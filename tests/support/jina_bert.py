"""Jina's BERT, which `transformers` does not know: the tensors of its files and its states.

Written after the authors' code (jinaai/jina-bert-implementation, modeling_bert.py): names, ALiBi
slopes by the recursion of its `get_alibi_head_slopes`, the gate in the first half of
`gated_layers`, scores divided before the bias is added.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from tests.support.tiny_weights import Shapes, bert_shapes

CLASS_NAME = "JinaBertForMaskedLM"


def jina_bert_shapes(config: Mapping[str, Any]) -> Shapes:
    """Tensors of a JinaBertModel."""
    d, f = config["hidden_size"], config["intermediate_size"]
    kept = {
        name: shape
        for name, shape in bert_shapes(config).items()
        if "position" not in name and not (".output." in name and ".attention." not in name)
        if "intermediate" not in name
    }
    for i in range(config["num_hidden_layers"]):
        mlp = f"encoder.layer.{i}.mlp"
        kept |= {f"{mlp}.gated_layers.weight": (2 * f, d), f"{mlp}.wo.weight": (d, f)}
        kept |= {
            f"{mlp}.{name}": (d,) for name in ("wo.bias", "layernorm.weight", "layernorm.bias")
        }
    return kept


def states(folder: Path, ids: np.ndarray) -> Tensor:
    """Final states [T, D] of one text, fp32."""
    config = json.loads((folder / "config.json").read_text())
    w: dict[str, Tensor] = {}
    for file in folder.glob("*.safetensors"):
        w |= {name.removeprefix("bert."): tensor for name, tensor in load_file(file).items()}
    eps, n = config.get("layer_norm_eps", 1e-12), config["num_attention_heads"]

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], eps)

    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))

    places = torch.arange(len(ids))
    bias = -torch.tensor(_slopes(n))[:, None, None] * (places[None] - places[:, None]).abs()
    x = w["embeddings.word_embeddings.weight"][torch.from_numpy(ids).long()]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        q, k, v = (
            linear(x, f"{layer}.attention.self.{part}").unflatten(1, (n, -1)).transpose(0, 1)
            for part in ("query", "key", "value")
        )
        shares = (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]) + bias).softmax(-1)
        attended = (shares @ v).transpose(0, 1).flatten(1)
        out = f"{layer}.attention.output"
        x = norm(linear(attended, f"{out}.dense") + x, f"{out}.LayerNorm")
        gated, plain = linear(x, f"{layer}.mlp.gated_layers").split(config["intermediate_size"], 1)
        x = norm(linear(F.gelu(gated) * plain, f"{layer}.mlp.wo") + x, f"{layer}.mlp.layernorm")
    return x


def _slopes(num_heads: int) -> list[float]:
    if math.log2(num_heads).is_integer():
        start = 2 ** (-(2 ** -(math.log2(num_heads) - 3)))
        return [start * start**i for i in range(num_heads)]
    below = 2 ** math.floor(math.log2(num_heads))
    return _slopes(below) + _slopes(2 * below)[0::2][: num_heads - below]
