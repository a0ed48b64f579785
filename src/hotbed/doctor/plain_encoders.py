"""The encoders once more: BERT, MPNet, DeBERTa, Jina's BERT, GTE's rotary BERT, ModernBERT,
T5.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from hotbed.checkpoint.records import (
    BertConfig,
    DebertaConfig,
    JinaBertConfig,
    ModernBertConfig,
    MpnetConfig,
    RotaryBertConfig,
    T5Config,
)
from hotbed.core.rope import DynamicScaling
from hotbed.doctor.plain_parts import (
    Weights,
    attend,
    distances,
    layer_norm,
    linear,
    rms_norm,
    rotate,
    visible,
)


def bert(c: BertConfig, w: Weights, x: Tensor) -> Tensor:
    """Exact GELU, positions from 0, all tokens of the first segment."""
    x = layer_norm(
        x + w["position"][: len(x)] + w["segment"][0], w, "embedding_norm", c.layer_norm_eps
    )
    return _post_norm_layers(c, w, x, None)


def mpnet(c: MpnetConfig, w: Weights, x: Tensor) -> Tensor:
    """BERT without segments, its scores with a bias by distance."""
    start = c.position_offset
    x = layer_norm(x + w["position"][start : start + len(x)], w, "embedding_norm", c.layer_norm_eps)
    return _post_norm_layers(c, w, x, _learned_bias(c, w, x))


def _learned_bias(c: MpnetConfig | T5Config, w: Weights, x: Tensor) -> Tensor:
    half = c.relative_attention_num_buckets // 2
    exact = half // 2
    ahead = distances(len(x), x.device)
    far = ahead.abs().clamp_min(1).float()
    grown = exact + (torch.log(far / exact) / math.log(128 / exact) * (half - exact)).long()
    bucket = torch.where(ahead.abs() < exact, ahead.abs(), grown.clamp_max(half - 1))
    return w["distance"][bucket + half * (ahead > 0)].permute(2, 0, 1)


def t5(c: T5Config, w: Weights, x: Tensor) -> Tensor:
    """Gated, as 1.1; q is scaled up again by what the scores are divided by."""
    assert c.is_gated, "written for the gated form"
    bias, eps = _learned_bias(c, w, x), c.layer_norm_eps
    for i in range(c.num_hidden_layers):
        p = f"layers.{i}."
        n = rms_norm(x, w[p + "attention_norm"], eps)
        q, k, v = linear(n, w, p + "qkv").view(len(x), 3, -1, c.head_dim).unbind(1)
        x = x + linear(attend(q * c.head_dim**0.5, k, v, bias), w, p + "out")
        gate, up = linear(rms_norm(x, w[p + "mlp_norm"], eps), w, p + "up").chunk(2, dim=-1)
        x = x + linear(F.gelu(gate, approximate="tanh") * up, w, p + "down")
    return rms_norm(x, w["final_norm"], eps)


def deberta(c: DebertaConfig, w: Weights, x: Tensor) -> Tensor:
    """Disentangled attention pair by pair, as in section 3.1 of the paper; scores by sqrt(3 H)."""
    eps, h, n, b = c.layer_norm_eps, c.head_dim, c.num_attention_heads, c.position_buckets
    x = layer_norm(x, w, "embedding_norm", eps)
    table = F.layer_norm(
        w["distance"], (c.hidden_size,), w["distance_norm.weight"], w["distance_norm.bias"], eps
    )
    behind = -distances(len(x), x.device)
    far = torch.log(behind.abs().clamp_min(1) / (b / 2)) / math.log(
        (c.longest_sequence - 1) / b * 2
    )
    grown = (far * (b // 2 - 1)).sub(1e-4).ceil().long() + b // 2
    row = b + torch.where(behind.abs() <= b // 2, behind, behind.sign() * grown)
    row = row.clamp(0, 2 * b - 1)
    for i in range(c.num_hidden_layers):
        p = f"layers.{i}."
        q, k, v = linear(x, w, p + "qkv").view(len(x), 3, n, h).unbind(1)
        qr, kr, _ = linear(table, w, p + "qkv").view(2 * b, 3, n, h).unbind(1)
        scores = torch.einsum("inh,jnh->nij", q, k)
        scores += torch.einsum("inh,ijnh->nij", q, kr[row])
        scores += torch.einsum("jnh,ijnh->nij", k, qr[row])
        shares = (scores / (3 * h) ** 0.5).softmax(-1)
        attended = torch.einsum("nij,jnh->inh", shares, v).flatten(1)
        x = layer_norm(x + linear(attended, w, p + "out"), w, p + "attention_norm", eps)
        inner = F.gelu(linear(x, w, p + "up"))
        x = layer_norm(x + linear(inner, w, p + "down"), w, p + "mlp_norm", eps)
    return x


def jina_bert(c: JinaBertConfig, w: Weights, x: Tensor) -> Tensor:
    """ALiBi of 2^k heads to both sides; the gate is the first half."""
    eps, n = c.layer_norm_eps, c.num_attention_heads
    slopes = 0.5 ** ((torch.arange(n, device=x.device) + 1) * 8 / n)
    far = -slopes[:, None, None] * distances(len(x), x.device).abs()
    x = layer_norm(x + w["segment"][0], w, "embedding_norm", eps)
    for i in range(c.num_hidden_layers):
        p = f"layers.{i}."
        q, k, v = linear(x, w, p + "qkv").view(len(x), 3, n, c.head_dim).unbind(1)
        attended = attend(q, k, v, far)
        x = layer_norm(x + linear(attended, w, p + "out"), w, p + "attention_norm", eps)
        gate, up = linear(x, w, p + "gate_up").chunk(2, dim=-1)
        x = layer_norm(x + linear(F.gelu(gate) * up, w, p + "down"), w, p + "mlp_norm", eps)
    return x


def _post_norm_layers(
    c: BertConfig | MpnetConfig, w: Weights, x: Tensor, bias: Tensor | None
) -> Tensor:
    eps = c.layer_norm_eps
    for i in range(c.num_hidden_layers):
        p = f"layers.{i}."
        qkv = linear(x, w, p + "qkv").view(len(x), 3, c.num_attention_heads, c.head_dim)
        q, k, v = qkv.unbind(1)
        attended = attend(q, k, v, bias)
        x = layer_norm(x + linear(attended, w, p + "out"), w, p + "attention_norm", eps)
        inner = F.gelu(linear(x, w, p + "up"))
        x = layer_norm(x + linear(inner, w, p + "down"), w, p + "mlp_norm", eps)
    return x


def rotary_bert(c: RotaryBertConfig, w: Weights, x: Tensor) -> Tensor:
    """GTE's form: biases, GELU, up stored before gate; with dynamic scaling."""
    assert c.naming == "gte", "written for GTE's form"
    assert isinstance(c.rope_scaling, DynamicScaling), "written for a scaled rotation"
    eps, h, theta = c.layer_norm_eps, c.head_dim, c.rope_theta
    stretch = len(x) / c.rope_scaling.original_max_position_embeddings
    if stretch > 1:
        factor = c.rope_scaling.factor
        theta *= (factor * stretch - factor + 1) ** (h / (h - 2))
    x = layer_norm(x + w["segment"][0], w, "embedding_norm", eps)
    for i in range(c.num_hidden_layers):
        p = f"layers.{i}."
        q, k, v = linear(x, w, p + "qkv").view(len(x), 3, c.num_attention_heads, h).unbind(1)
        attended = attend(rotate(q, theta), rotate(k, theta), v)
        x = layer_norm(x + linear(attended, w, p + "out"), w, p + "attention_norm", eps)
        up, gate = linear(x, w, p + "gate_up").chunk(2, dim=-1)
        x = layer_norm(x + linear(F.gelu(gate) * up, w, p + "down"), w, p + "mlp_norm", eps)
    return x


def modernbert(c: ModernBertConfig, w: Weights, x: Tensor) -> Tensor:
    """Local layers see a window; the first layer has no norm before its attention."""

    def norm(v: Tensor, name: str) -> Tensor:
        return F.layer_norm(v, v.shape[-1:], w[name], None, c.norm_eps)

    x = norm(x, "embedding_norm")
    for i, is_local in enumerate(c.is_local):
        p = f"layers.{i}."
        theta = c.local_theta if is_local else c.global_theta
        scores = visible(len(x), x.device, causal=False, window=c.window if is_local else None)
        normed = x if i == 0 else norm(x, p + "attention_norm")
        qkv = linear(normed, w, p + "qkv").view(len(x), 3, c.num_attention_heads, c.head_dim)
        q, k, v = qkv.unbind(1)
        x = x + linear(attend(rotate(q, theta), rotate(k, theta), v, scores), w, p + "out")
        gate, up = linear(norm(x, p + "mlp_norm"), w, p + "gate_up").chunk(2, dim=-1)
        x = x + linear(F.gelu(gate) * up, w, p + "down")
    return norm(x, "final_norm")
