"""The models once more, in plain fp32 torch, one sequence at a time: what the engine is held to."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.shapes import Shape


def reference_row(shape: Shape, weights: dict[str, Tensor], ids: Tensor) -> Tensor:
    """fp32 row [D] of one sequence of ids [T], normalised if the recipe says so."""
    w = {name: tensor.float() for name, tensor in weights.items() if not name.startswith("word")}
    x = F.embedding(ids, weights["word"]).float()
    states = _qwen3(shape, w, x) if shape.family == "decoder" else _bert(shape, w, x)
    pooling = shape.recipe.pooling
    row = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pooling]
    return F.normalize(row, dim=0) if shape.recipe.normalize else row


def _qwen3(shape: Shape, w: dict[str, Tensor], x: Tensor) -> Tensor:
    c = shape.config
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


def _bert(shape: Shape, w: dict[str, Tensor], x: Tensor) -> Tensor:
    c = shape.config
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
