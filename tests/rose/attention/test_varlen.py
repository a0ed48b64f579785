"""What reaches torch's varlen_attn; the kernel itself is tested on a card (test_gpu)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hotbed.rose.attention import varlen
from hotbed.rose.attention.backend import AttentionSpec
from tests.rose.attention.batches import device_batch, split_heads


@pytest.mark.parametrize(
    ("causal", "window", "expected"),
    [(False, None, (-1, -1)), (True, None, (-1, 0)), (False, 7, (7, 7)), (True, 7, (7, 0))],
)
def test_offsets_bound_scale_and_window_reach_the_kernel(
    monkeypatch: pytest.MonkeyPatch, causal: bool, window: int | None, expected: tuple[int, int]
) -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def record(*args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append((args, kwargs))
        return torch.empty_like(args[0])

    monkeypatch.setattr(varlen, "_varlen_attn", lambda: record)
    spec = AttentionSpec(4, 2, 16, causal=causal, window=window)
    batch = device_batch([3, 5], 10, num_slots=4, max_seqlen=64)
    q, k, v = split_heads(torch.randn(10, 8, 16), spec)
    backend = varlen.VarlenBackend()
    backend.run(q, k, v, backend.plan(batch, spec))
    ((args, kwargs),) = calls
    offsets = batch.cu_seqlens
    assert [id(x) for x in args[:5]] == [id(x) for x in (q, k, v, offsets, offsets)]
    assert args[5:] == (64, 64)
    assert kwargs.pop("scale") == 0.25
    assert kwargs.pop("window_size") == expected
    assert kwargs == {}


def test_gqa_is_asked_for_where_torch_wants_it() -> None:
    assert varlen._gqa_arguments(dict.fromkeys(["query", "enable_gqa"])) == {"enable_gqa": True}
    assert varlen._gqa_arguments(dict.fromkeys(["query"])) == {}


def test_a_bound_of_one_is_never_handed_on() -> None:
    """The kernel would take q for [slots, N, H], and there are slots without tokens."""
    batch = device_batch([1, 1], 2, num_slots=4, max_seqlen=1)
    plan = varlen.VarlenBackend().plan(batch, AttentionSpec(4, 2, 16, causal=False))
    assert plan.max_seqlen == 2
