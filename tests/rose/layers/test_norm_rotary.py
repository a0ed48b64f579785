"""Norms and rotary embedding against their formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hotbed.core.ragged import RaggedBatch
from hotbed.rose.batch import pack
from hotbed.rose.layers.norm import LayerNorm, RMSNorm
from hotbed.rose.layers.rotary import Rotary


def test_layer_norm_is_the_formula() -> None:
    torch.manual_seed(0)
    x, w, b = torch.randn(7, 24) * 3 + 1, torch.randn(24), torch.randn(24)
    v = x.double()
    mean, var = v.mean(-1, keepdim=True), v.var(-1, keepdim=True, unbiased=False)
    expected = (v - mean) / torch.sqrt(var + 1e-12) * w + b
    torch.testing.assert_close(LayerNorm(w, b, eps=1e-12)(x).double(), expected, atol=1e-5, rtol=0)


def test_rms_norm_has_fp32_statistics_in_bf16() -> None:
    torch.manual_seed(0)
    # Squares near 1e6 summed in bf16 (8 bits) would be off by several percent.
    x = (torch.randn(3, 512) * 1000).bfloat16()
    w = torch.ones(512, dtype=torch.bfloat16)
    v = x.double()
    expected = v / torch.sqrt((v * v).mean(-1, keepdim=True) + 1e-6)
    got = RMSNorm(w, eps=1e-6)(x).double()
    torch.testing.assert_close(got, expected, atol=0, rtol=2**-8)


def test_rms_norm_works_per_head() -> None:
    x = torch.randn(4, 3, 8)
    got = RMSNorm(torch.full((8,), 2.0), eps=0.0)(x)
    torch.testing.assert_close(got.square().mean(-1).sqrt(), torch.full((4, 3), 2.0))


@pytest.mark.parametrize("theta", [10_000.0, 1_000_000.0])
def test_rotary_is_the_formula_at_each_position(theta: float) -> None:
    torch.manual_seed(0)
    head_dim, batch = 8, pack(RaggedBatch.from_sequences([np.zeros(n, np.int32) for n in (64, 3)]))
    positions = batch.positions
    rotary = Rotary(head_dim=head_dim, theta=theta, max_positions=64, device=torch.device("cpu"))
    x = torch.randn(len(positions), 2, head_dim)
    got = rotary.at(batch).apply(x)
    for t, position in enumerate(positions.tolist()):
        for i in range(head_dim // 2):
            angle = position * theta ** (-2 * i / head_dim)
            a, b = x[t, :, i], x[t, :, i + head_dim // 2]
            expected = (
                a * math.cos(angle) - b * math.sin(angle),
                b * math.cos(angle) + a * math.sin(angle),
            )
            torch.testing.assert_close(got[t, :, i], expected[0], atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(
                got[t, :, i + head_dim // 2], expected[1], atol=1e-5, rtol=1e-5
            )
