"""Attention with a bias for distances: the form of a CPU and that of a GPU give the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from hotbed.core.ragged import RaggedBatch
from hotbed.rose.batch import PackedBatch, pack
from hotbed.rose.layers.relative_bias import RelativeBiasAttention, bucket

HEADS, HEAD_DIM, BUCKETS, POSITIONS = 3, 8, 32, 200


def attention(seed: int = 0) -> RelativeBiasAttention:
    table = torch.randn(BUCKETS, HEADS, generator=torch.Generator().manual_seed(seed))
    return RelativeBiasAttention(table, max_positions=POSITIONS, scale=HEAD_DIM**-0.5)


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
