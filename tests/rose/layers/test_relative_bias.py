"""Attention with a bias for distances: the form of a CPU and that of a GPU give the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from hotbed.core.ragged import RaggedBatch
from hotbed.rose.batch import PackedBatch, pack
from hotbed.rose.layers import relative_bias
from hotbed.rose.layers.relative_bias import RelativeBiasAttention, alibi, bucket, learned

HEADS, HEAD_DIM, BUCKETS, POSITIONS = 3, 8, 32, 200


def attention(seed: int = 0) -> RelativeBiasAttention:
    table = torch.randn(BUCKETS, HEADS, generator=torch.Generator().manual_seed(seed))
    return RelativeBiasAttention(learned(table, POSITIONS), scale=HEAD_DIM**-0.5)


def batch(lengths: list[int]) -> PackedBatch:
    return pack(RaggedBatch.from_sequences([np.ones(n, np.int32) for n in lengths]))


def as_on_a_gpu(packed: PackedBatch) -> PackedBatch:
    """Without groups, the pad rows in a slot of their own behind one without tokens."""
    ends = torch.tensor([packed.num_tokens, len(packed.token_ids)], dtype=torch.int32)
    return dataclasses.replace(packed, groups=(), cu_seqlens=torch.cat((packed.cu_seqlens, ends)))


def qkv(num_tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    packed = torch.randn(
        num_tokens, 3 * HEADS, HEAD_DIM, generator=torch.Generator().manual_seed(1)
    )
    q, k, v = packed.split(HEADS, dim=1)
    return q, k, v


@pytest.mark.parametrize("lengths", [[1], [17, 17, 3], [150, 1, 40], [200]])
def test_both_forms_agree(lengths: list[int]) -> None:
    layer, packed = attention(), batch(lengths)
    tensors = qkv(len(packed.token_ids))
    on_cpu = layer.run(*tensors, layer.plan(packed))
    gpu_batch = as_on_a_gpu(packed)
    on_gpu = layer.run(*tensors, layer.plan(gpu_batch))
    total = packed.num_tokens
    torch.testing.assert_close(on_gpu[:total], on_cpu[:total], atol=1e-5, rtol=1e-5)
    assert on_gpu.isfinite().all(), "pad rows too"
    assert on_cpu.isfinite().all()


def test_pad_rows_and_other_sequences_reach_no_row() -> None:
    layer, packed = attention(), batch([5, 30])
    q, k, v = (x.clone() for x in qkv(len(packed.token_ids)))
    plan = layer.plan(as_on_a_gpu(packed))
    before = layer.run(q, k, v, plan)
    k[30:], v[30:] = 9.0, 9.0
    after = layer.run(q, k, v, plan)
    torch.testing.assert_close(after[:30], before[:30], atol=1e-6, rtol=1e-6)
    assert (after[30:35] - before[30:35]).abs().max() > 0.1


def test_buckets_by_hand() -> None:
    """Right of the query from 16 on; 0 to 7 of their own, then growing, all alike from 128 on."""
    distances = torch.tensor([0, -1, 1, -7, 7, -8, 8, -16, -127, -128, -500, 500])
    expected = [0, 1, 17, 7, 23, 8, 24, 10, 15, 15, 15, 31]
    assert bucket(distances, 32).tolist() == expected


@pytest.mark.parametrize("limit", [1, 3 * 40 * 7, 3 * 200 * 200])
def test_a_long_text_some_queries_at_a_time_is_the_same(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8,192 tokens with twelve heads would have a bias of 3 GB."""
    layer, packed = attention(), batch([40, 40, 3])
    tensors = qkv(len(packed.token_ids))
    whole = layer.run(*tensors, layer.plan(packed))
    monkeypatch.setattr(relative_bias, "_MAX_BIAS", limit)
    pieces = layer.run(*tensors, layer.plan(packed))
    torch.testing.assert_close(pieces, whole, atol=1e-6, rtol=1e-6)


def test_slopes_by_hand() -> None:
    """Of 4 heads 1/4, 1/16, 1/64, 1/256; of 6 besides them the first and third of 8."""
    of_4 = alibi(4, 3, like=torch.zeros(1))
    assert of_4[:, 3].tolist() == [-1 / 4, -1 / 16, -1 / 64, -1 / 256]
    assert of_4[0].tolist() == [-0.5, -0.25, 0, -0.25, -0.5]
    assert alibi(6, 2, like=torch.zeros(1))[4:, 2].tolist() == [-1 / 2, -1 / 8]
