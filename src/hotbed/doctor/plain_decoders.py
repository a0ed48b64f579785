"""The decoders once more: Qwen3, Gemma 3."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from hotbed.checkpoint.records import DecoderConfig, Gemma3Config
from hotbed.doctor.plain_parts import Weights, attend, linear, rms_norm, rotate, visible


def qwen3(c: DecoderConfig, w: Weights, x: Tensor) -> Tensor:
    """Pre-norm layers; q and k are normalised, then rotated."""
    assert c.qk_norm, "written for Qwen3"
    n, k, h, eps = c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.rms_norm_eps
    scores = visible(len(x), x.device, causal=c.is_causal, window=None)
    for i in range(c.num_hidden_layers):
        p = f"layers.{i}."
        qkv = linear(rms_norm(x, w[p + "attention_norm"], eps), w, p + "qkv").view(len(x), -1, h)
        q, key, value = qkv.split((n, k, k), dim=1)
        q = rotate(rms_norm(q, w[p + "q_norm"], eps), c.rope_theta)
        key = rotate(rms_norm(key, w[p + "k_norm"], eps), c.rope_theta)
        x = x + linear(attend(q, key, value, scores), w, p + "out")
        gate, up = linear(rms_norm(x, w[p + "mlp_norm"], eps), w, p + "gate_up").chunk(2, dim=-1)
        x = x + linear(F.silu(gate) * up, w, p + "down")
    return rms_norm(x, w["final_norm"], eps)


def gemma3(c: Gemma3Config, w: Weights, x: Tensor) -> Tensor:
    """Norms before and behind each block, each by 1 + its weight; local layers see a window."""
    n, k, h = c.num_attention_heads, c.num_key_value_heads, c.head_dim

    def norm(v: Tensor, name: str) -> Tensor:
        return rms_norm(v, 1 + w[name], c.rms_norm_eps)

    x = x * c.hidden_size**0.5
    for i, is_local in enumerate(c.is_local):
        p = f"layers.{i}."
        theta = c.local_theta if is_local else c.global_theta
        window = c.window if is_local else None
        scores = visible(len(x), x.device, causal=c.is_causal, window=window)
        qkv = linear(norm(x, p + "attention_norm"), w, p + "qkv").view(len(x), -1, h)
        q, key, value = qkv.split((n, k, k), dim=1)
        q, key = rotate(norm(q, p + "q_norm"), theta), rotate(norm(key, p + "k_norm"), theta)
        attended = linear(attend(q, key, value, scores), w, p + "out")
        x = x + norm(attended, p + "out_norm")
        gate, up = linear(norm(x, p + "mlp_norm"), w, p + "gate_up").chunk(2, dim=-1)
        inner = F.gelu(gate, approximate="tanh") * up
        x = x + norm(linear(inner, w, p + "down"), p + "down_norm")
    return norm(x, "final_norm")
