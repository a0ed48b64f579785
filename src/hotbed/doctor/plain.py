"""Every family once more, in plain torch, one sequence at a time: what the engine is held to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.doctor import plain_decoders, plain_encoders
from hotbed.doctor.plain_parts import Weights
from hotbed.rose.recipe import Recipe
from hotbed.rose.weights import WeightMap

FAMILIES: dict[str, Callable[[Any, Weights, Tensor], Tensor]] = {
    "bert": plain_encoders.bert,
    "deberta": plain_encoders.deberta,
    "decoder": plain_decoders.qwen3,
    "gemma3": plain_decoders.gemma3,
    "jina_bert": plain_encoders.jina_bert,
    "modernbert": plain_encoders.modernbert,
    "mpnet": plain_encoders.mpnet,
    "rotary_bert": plain_encoders.rotary_bert,
    "t5": plain_encoders.t5,
}
"""From the family's record, fp32 weights and embedded tokens [T, D] to the final states [T, D]."""


def random_weights(
    weight_map: WeightMap, device: torch.device, *, norm_mean: float = 1.0, seed: int = 0
) -> dict[str, Tensor]:
    """bfloat16 parameters by name: matrices by 1/sqrt(fan-in), norms near their mean, biases near
    0.
    """
    generator = torch.Generator(device).manual_seed(seed)
    tensors = {}
    for name, parameter in weight_map.parameters.items():
        values = torch.randn(parameter.shape, generator=generator, device=device)
        if "norm" in name and not name.endswith("bias"):
            values = norm_mean + 0.1 * values
        elif len(parameter.shape) == 1:
            values *= 0.02
        elif name.startswith("layers."):
            values /= parameter.shape[1] ** 0.5
        tensors[name] = values.to(torch.bfloat16)
    return tensors


def plain_row(
    family: str, config: Any, recipe: Recipe, weights: dict[str, Tensor], ids: Tensor
) -> Tensor:
    """fp32 row [D] of one sequence of ids [T], normalised if the recipe says so.

    Args:
        family: in the registry.
        config: the family's record.
        recipe: of the row.
        weights: by the names of the family's weight map, any dtype.
        ids: on the weights' device.
    """
    w = {name: tensor.float() for name, tensor in weights.items() if not name.startswith("word")}
    states = FAMILIES[family](config, w, F.embedding(ids, weights["word"]).float())
    row = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[recipe.pooling]
    return F.normalize(row, dim=0) if recipe.normalize else row
