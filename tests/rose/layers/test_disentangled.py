"""DeBERTa's attention: the form of a CPU and that of a GPU give the same."""

from __future__ import annotations

import pytest
import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from hotbed.rose.layers import disentangled
from hotbed.rose.layers.disentangled import DisentangledAttention, Distances, bucket
from tests.rose.layers.test_relative_bias import HEAD_DIM, HEADS, as_on_a_gpu, batch, qkv

BUCKETS, POSITIONS = 16, 200


def attention() -> DisentangledAttention:
    generator = torch.Generator().manual_seed(0)
    keys, queries = torch.randn(2, 2 * BUCKETS, HEADS, HEAD_DIM, generator=generator)
    return DisentangledAttention(keys, queries)


def distances() -> Distances:
    return Distances(BUCKETS, max_positions=POSITIONS, device=torch.device("cpu"))


@pytest.mark.parametrize("lengths", [[1], [17, 17, 3], [150, 1, 40], [200]])
def test_both_forms_agree(lengths: list[int]) -> None:
    layer, packed = attention(), batch(lengths)
    tensors = qkv(len(packed.token_ids))
    on_cpu = layer.run(*tensors, distances().plan(packed))
    on_gpu = layer.run(*tensors, distances().plan(as_on_a_gpu(packed)))
    total = packed.num_tokens
    torch.testing.assert_close(on_gpu[:total], on_cpu[:total], atol=1e-5, rtol=1e-5)
    assert on_gpu.isfinite().all(), "pad rows too"
    assert on_cpu.isfinite().all()


def test_a_group_in_pieces_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of many texts of one length are not all held at once."""
    layer, packed = attention(), batch([9] * 5)
    tensors = qkv(len(packed.token_ids))
    whole = layer.run(*tensors, distances().plan(packed))
    monkeypatch.setattr(disentangled, "_MAX_SCORES", 2 * HEADS * 9 * 9)
    pieces = layer.run(*tensors, distances().plan(packed))
    torch.testing.assert_close(pieces, whole, atol=1e-6, rtol=1e-6)


def test_pad_rows_and_other_sequences_reach_no_row() -> None:
    layer, packed = attention(), batch([5, 30])
    q, k, v = (x.clone() for x in qkv(len(packed.token_ids)))
    plan = distances().plan(as_on_a_gpu(packed))
    before = layer.run(q, k, v, plan)
    k[30:], v[30:] = 9.0, 9.0
    after = layer.run(q, k, v, plan)
    torch.testing.assert_close(after[:30], before[:30], atol=1e-6, rtol=1e-6)
    assert (after[30:35] - before[30:35]).abs().max() > 0.1


@pytest.mark.parametrize(("num_buckets", "positions"), [(256, 512), (16, 200), (32, 96)])
def test_every_distance_has_the_bucket_of_the_authors(num_buckets: int, positions: int) -> None:
    far = torch.arange(1 - positions, positions)
    expected = make_log_bucket_position(far, num_buckets, positions).long()
    assert torch.equal(bucket(far, num_buckets, positions), expected)
