"""The CPU's backend against plain attention in fp64, and the choice of a backend."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from hotbed.core.errors import HotbedError
from hotbed.core.ragged import RaggedBatch
from hotbed.rose.attention.backend import AttentionSpec
from hotbed.rose.attention.reference import reference, worst_error
from hotbed.rose.attention.select import AttentionSettings, describe, select_backend
from hotbed.rose.batch import pack
from tests.rose.attention.batches import split_heads

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
    pytest.param(AttentionSpec(3, 3, 32, causal=False, window=4), id="window"),
    pytest.param(AttentionSpec(4, 2, 16, causal=True, window=16), id="gqa causal window"),
    pytest.param(AttentionSpec(2, 2, 16, causal=False, window=0), id="window of itself"),
]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_sdpa_matches_the_formula_and_pad_rows_stay_out(
    spec: AttentionSpec, lengths: list[int]
) -> None:
    torch.manual_seed(0)
    batch = pack(RaggedBatch.from_sequences([np.ones(n, np.int32) for n in lengths]))
    backend = select_backend(spec, "cpu")
    total = len(batch.token_ids)
    # Views of one projection, as a model hands them over; NaN in every pad row.
    heads = torch.randn(total, spec.num_heads + 2 * spec.num_kv_heads, spec.head_dim)
    heads[batch.num_tokens :] = float("nan")
    q, k, v = split_heads(heads, spec)
    got = backend.run(q, k, v, backend.plan(batch, spec))
    expected = reference(q, k, v, batch.cu_seqlens.tolist(), spec)
    torch.testing.assert_close(got[: batch.num_tokens].double(), expected, atol=2e-6, rtol=1e-5)
    assert got.is_contiguous()
    if len(batch.groups) > 1 or batch.num_tokens < total:
        assert torch.isfinite(got[batch.num_tokens :]).all(), "pad rows must be finite"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 1, 3, 8, 9, None])
def test_a_token_sees_as_far_as_the_window_and_not_one_further(
    window: int | None, causal: bool
) -> None:
    """Nothing but distances: scores are all 0, and v says which key it is."""
    length = 10
    spec = AttentionSpec(1, 1, 16, causal=causal, window=window)
    batch = pack(RaggedBatch.from_sequences([np.ones(length, np.int32)]))
    zeros = torch.zeros(len(batch.token_ids), 1, 16)
    v = torch.eye(len(batch.token_ids), 16)[:, None]
    backend = select_backend(spec, "cpu")
    seen = backend.run(zeros, zeros, v, backend.plan(batch, spec))[:length, 0, :length]
    expected = reference(zeros, zeros, v, [0, length], spec)[:, 0, :length]
    for i in range(length):
        for j in range(length):
            visible = (j <= i or not causal) and (window is None or abs(i - j) <= window)
            assert (seen[i, j] > 0) == visible, (i, j)
            assert (expected[i, j] > 0) == visible, (i, j)


def test_the_measure_of_error_passes_rounding_and_finds_a_missing_key() -> None:
    torch.manual_seed(0)
    spec = AttentionSpec(4, 2, 32, causal=False, window=30)
    q, k, v = split_heads(torch.randn(200, 8, 32), spec)
    q, k, v = 3 * q.bfloat16(), k.bfloat16(), v.bfloat16()
    offsets = [0, 70, 200]
    right = reference(q, k, v, offsets, spec).bfloat16()
    assert 0 < worst_error(right, (q, k, v), offsets, spec) < 1
    narrower = AttentionSpec(4, 2, 32, causal=False, window=29)
    wrong = reference(q, k, v, offsets, narrower).bfloat16()
    assert worst_error(wrong, (q, k, v), offsets, spec) > 10
    right[3, 0, 0] = float("nan")
    assert not worst_error(right, (q, k, v), offsets, spec) <= 1


@pytest.mark.parametrize(
    ("heads", "window", "message"), [((3, 2), None, "must divide"), ((2, 2), -1, "negative")]
)
def test_a_spec_that_means_nothing_is_refused(
    heads: tuple[int, int], window: int | None, message: str
) -> None:
    with pytest.raises(HotbedError, match=message):
        AttentionSpec(*heads, 16, causal=False, window=window)


@pytest.mark.parametrize(
    ("name", "device", "dtype", "reason"),
    [
        ("fa9", "cpu", None, "'fa9' is unknown; there are: auto, sdpa, varlen, fa4"),
        ("varlen", "cpu", None, "'varlen' cannot run this model: it runs on CUDA, not on cpu"),
        ("fa4", "cpu", None, "'fa4' cannot run this model: it runs on CUDA, not on cpu"),
        ("sdpa", "cuda", None, "needs the lengths on the host"),
        ("varlen", "cuda", torch.float32, "bfloat16 or float16, not float32"),
        ("fa4", "cuda", torch.float16, "bfloat16, not float16"),
        ("fa4", "cuda", None, "no folder of kernels was given"),
        ("auto", "cuda", torch.float32, "no attention backend .*fa4: .*; varlen: .*not float32"),
        ("auto", "meta", None, "there is none for meta"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(
    name: str, device: str, dtype: torch.dtype | None, reason: str
) -> None:
    spec = AttentionSpec(1, 1, 8, causal=False)
    with pytest.raises(HotbedError, match=reason):
        select_backend(spec, device, settings=AttentionSettings(name), dtype=dtype)


@pytest.mark.parametrize("head_dim", [12, 264])
def test_varlen_names_the_head_dims_it_takes(head_dim: int) -> None:
    spec = AttentionSpec(1, 1, head_dim, causal=False)
    with pytest.raises(HotbedError, match=f"{head_dim} is not a multiple of 8 up to 256"):
        select_backend(spec, "cuda", settings=AttentionSettings("varlen"))


def test_auto_says_what_it_chose(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="hotbed.rose"):
        select_backend(AttentionSpec(1, 1, 8, causal=False), "cpu")
    assert [record.getMessage() for record in caplog.records] == ["attention on cpu: sdpa"]


def test_the_table_says_what_is_missing_here(tmp_path: Path) -> None:
    rows = {row.name: row for row in describe(AttentionSettings(kernel_dir=tmp_path / "none"))}
    assert list(rows) == ["sdpa", "varlen", "fa4"]
    assert rows["sdpa"].missing is None
    assert rows["fa4"].missing == f"{tmp_path / 'none'} is not a folder"
    assert rows["fa4"].head_dims == "of the kernels found: none"
