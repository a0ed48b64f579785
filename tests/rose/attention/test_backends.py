"""Every backend against plain softmax attention in fp64, sequence by sequence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hotbed.core.errors import HotbedError
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.attention.backend import AttentionSpec
from hotbed.rose.attention.select import BACKENDS, select_backend
from hotbed.rose.batch import PackedBatch, pack

LENGTHS = [
    pytest.param([1], id="one token"),
    pytest.param([8], id="one sequence that fills its bucket"),
    pytest.param([5, 5, 5], id="equal lengths"),
    pytest.param([1, 17, 2, 17, 1, 64, 3], id="mixed, with ones"),
]
SPECS = [
    pytest.param(AttentionSpec(3, 3, 32, causal=False), id="hd32"),
    pytest.param(AttentionSpec(4, 2, 16, causal=True), id="gqa causal"),
    pytest.param(AttentionSpec(4, 1, 16, causal=False), id="gqa to one"),
]


def _reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: PackedBatch, spec: AttentionSpec
) -> torch.Tensor:
    out = torch.zeros(q.shape, dtype=torch.float64)
    for group in batch.groups:
        for i in range(group.count):
            rows = slice(group.start + i * group.length, group.start + (i + 1) * group.length)
            for head in range(spec.num_heads):
                kv_head = head * spec.num_kv_heads // spec.num_heads
                scores = q[rows, head].double() @ k[rows, kv_head].double().T * spec.scale
                if spec.causal:
                    hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
                    scores = scores.masked_fill(hidden, -torch.inf)
                out[rows, head] = scores.softmax(-1) @ v[rows, kv_head].double()
    return out


@pytest.mark.parametrize("name", sorted(BACKENDS))
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_backend_matches_the_formula_and_pad_rows_stay_out(
    name: str, spec: AttentionSpec, lengths: list[int]
) -> None:
    torch.manual_seed(0)
    batch = pack(RaggedBatch.from_sequences([np.ones(n, np.int32) for n in lengths]))
    backend = select_backend(spec, "cpu", name=name)
    total = len(batch.token_ids)
    # Views of one projection, as a model hands them over; NaN in every pad row.
    heads = torch.randn(total, spec.num_heads + 2 * spec.num_kv_heads, spec.head_dim)
    heads[batch.num_tokens :] = float("nan")
    q, k, v = heads.split((spec.num_heads, spec.num_kv_heads, spec.num_kv_heads), dim=1)
    got = backend.run(q, k, v, backend.plan(batch, spec))
    real = slice(0, batch.num_tokens)
    expected = _reference(q, k, v, batch, spec)
    torch.testing.assert_close(got[real].double(), expected[real], atol=2e-6, rtol=1e-5)
    assert got.is_contiguous()
    if len(batch.groups) > 1 or batch.num_tokens < total:
        assert torch.isfinite(got[batch.num_tokens :]).all(), "pad rows must be finite"


def test_an_unknown_backend_is_refused_with_the_list() -> None:
    with pytest.raises(HotbedError, match="'fa9' is unknown; there are: auto, sdpa"):
        select_backend(AttentionSpec(1, 1, 8, causal=False), "cpu", name="fa9")
