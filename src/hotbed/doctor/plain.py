"""The models once more, in plain torch, one sequence at a time: what the engine is held to."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.rose.recipe import Recipe
from hotbed.rose.weights import WeightMap


def random_weights(weight_map: WeightMap, device: torch.device, seed: int = 0) -> dict[str, Tensor]:
    """bfloat16 parameters by name: matrices by 1/sqrt(fan-in), norms near 1, biases near 0."""
    generator = torch.Generator(device).manual_seed(seed)
    tensors = {}
    for name, parameter in weight_map.parameters.items():
        values = torch.randn(parameter.shape, generator=generator, device=device)
        if "norm" in name and not name.endswith("bias"):
            values = 1 + 0.1 * values
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
        family: ``bert`` or ``decoder``, then Qwen3.
        config: the family's record.
        recipe: of the row.
        weights: by the names of the family's weight map, any dtype.
        ids: on the weights' device.
    """
    w = {name: tensor.float() for name, tensor in weights.items() if not name.startswith("word")}
    x = F.embedding(ids, weights["word"]).float()
    states = _qwen3(config, w, x) if family == "decoder" else _bert(config, w, x)
    row = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[recipe.pooling]
    return F.normalize(row, dim=0) if recipe.normalize else row


def _qwen3(c: Any, w: dict[str, Tensor], x: Tensor) -> Tensor:
    n, k, h = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    exponent = torch.arange(0, h, 2, device=x.device).float() / h
    angles = torch.outer(torch.arange(len(x), device=x.device).float(), c.rope_theta**-exponent)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]

    def norm(v: Tensor, weight: Tensor) -> Tensor:
        return v * torch.rsqrt(v.square().mean(-1, keepdim=True) + c.rms_norm_eps) * weight

    def rotate(v: Tensor) -> Tensor:
        a, b = v.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    for i in range(c.num_hidden_layers):
        p = f"layers.{i}."
        qkv = norm(x, w[p + "attention_norm"]) @ w[p + "qkv.weight"].T
        q, key, value = qkv.view(len(x), -1, h).split((n, k, k), dim=1)
        q, key = rotate(norm(q, w[p + "q_norm"])), rotate(norm(key, w[p + "k_norm"]))
        q, key, value = (t.transpose(0, 1)[None] for t in (q, key, value))
        attended = F.scaled_dot_product_attention(
            q, key, value, is_causal=c.is_causal, enable_gqa=True
        )
        x = x + attended[0].transpose(0, 1).reshape(len(x), -1) @ w[p + "out.weight"].T
        gate, up = (norm(x, w[p + "mlp_norm"]) @ w[p + "gate_up.weight"].T).chunk(2, dim=-1)
        x = x + (F.silu(gate) * up) @ w[p + "down.weight"].T
    return norm(x, w["final_norm"])


def _bert(c: Any, w: dict[str, Tensor], x: Tensor) -> Tensor:
    n, h, eps = c.num_attention_heads, c.head_dim, c.layer_norm_eps

    def norm(v: Tensor, name: str) -> Tensor:
        return F.layer_norm(v, v.shape[-1:], w[name + ".weight"], w[name + ".bias"], eps)

    def linear(v: Tensor, name: str) -> Tensor:
        return F.linear(v, w[name + ".weight"], w[name + ".bias"])

    x = norm(x + w["position"][: len(x)] + w["segment"][0], "embedding_norm")
    for i in range(c.num_hidden_layers):
        p = f"layers.{i}."
        qkv = linear(x, p + "qkv").view(len(x), 3, n, h)
        q, key, value = (t.transpose(0, 1)[None] for t in qkv.unbind(1))
        attended = F.scaled_dot_product_attention(q, key, value)[0].transpose(0, 1)
        x = norm(x + linear(attended.reshape(len(x), -1), p + "out"), p + "attention_norm")
        x = norm(x + linear(F.gelu(linear(x, p + "up")), p + "down"), p + "mlp_norm")
    return x
