"""Which backend takes a step; on a card, that the dense one is right and copies nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hotbed.core.ragged import RaggedBatch
from hotbed.rose.attention.backend import AttentionSpec
from hotbed.rose.attention.by_shape import ByShapeBackend
from hotbed.rose.attention.reference import reference, worst_error
from hotbed.rose.attention.sdpa import SdpaBackend
from hotbed.rose.attention.varlen import VarlenBackend
from hotbed.rose.batch import PackedBatch
from hotbed.rose.buckets import step_config
from hotbed.rose.buffers import InputBuffers
from tests.rose.attention.batches import split_heads


class Ragged(VarlenBackend):
    """Stands for FlashAttention 4."""

    name = "ragged"


def _batch(lengths: list[int], device: str = "cpu") -> PackedBatch:
    """As the engine makes it for a backend that tells shapes apart."""
    total = sum(lengths)
    config = step_config(total, len(lengths), max(lengths), by_length=False, by_shape=True)
    buffers = InputBuffers(config, torch.device(device))
    host = np.zeros(buffers.num_ints, dtype=np.int32)
    buffers.fill(host, RaggedBatch.from_sequences([np.ones(n, np.int32) for n in lengths]))
    buffers.device_ints.copy_(torch.from_numpy(host))
    return buffers.batch


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("lengths", "chosen"),
    [
        ([512] * 16, "sdpa"),
        ([512] * 9, "sdpa"),
        ([128] * 32, "sdpa"),
        ([512] * 15 + [511], "ragged"),
        ([512] * 4, "ragged"),
        ([500] * 16, "ragged"),
        ([4096, 4096], "ragged"),
        ([32] * 256, "varlen"),
        ([128] * 64 + [1], "varlen"),
        ([256] * 32 + [255], "varlen"),
        ([32] * 256 + [257], "ragged"),
        ([32] * 127, "ragged"),
    ],
)
def test_the_step_goes_to_the_backend_of_its_shape(
    lengths: list[int], chosen: str, causal: bool
) -> None:
    spec = AttentionSpec(4, 2, 64, causal=causal)
    plan = ByShapeBackend(Ragged()).plan(_batch(lengths), spec)
    assert plan.backend.name == chosen


@pytest.mark.parametrize(("longest", "chosen"), [(128, "varlen"), (129, "ragged")])
def test_large_heads_take_varlen_for_the_shortest_texts_only(longest: int, chosen: str) -> None:
    plan = ByShapeBackend(Ragged()).plan(
        _batch([100] * 50 + [longest]), AttentionSpec(2, 1, 128, causal=False)
    )
    assert plan.backend.name == chosen


def test_a_window_is_never_dense() -> None:
    spec = AttentionSpec(4, 2, 64, causal=False, window=64)
    assert ByShapeBackend(Ragged()).plan(_batch([512] * 16), spec).backend.name == "ragged"


def test_the_chosen_backend_runs_with_its_own_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(SdpaBackend, "plan", lambda self, batch, spec: "its plan")
    monkeypatch.setattr(SdpaBackend, "run", lambda self, *args: seen.extend(args))
    backend = ByShapeBackend(Ragged())
    plan = backend.plan(_batch([512] * 16), AttentionSpec(2, 2, 16, causal=False))
    backend.run(*(torch.zeros(1) for _ in range(3)), plan)
    assert seen[3] == "its plan"


def test_dense_attention_over_a_uniform_batch_is_right_and_contiguous() -> None:
    """On the CPU: the views are the same."""
    torch.manual_seed(0)
    spec = AttentionSpec(4, 2, 16, causal=True)
    batch = _batch([256] * 16)
    qkv = split_heads(torch.randn(len(batch.token_ids), 8, 16), spec)
    backend = ByShapeBackend(Ragged())
    out = backend.run(*qkv, backend.plan(batch, spec))
    assert out.is_contiguous()
    expected = reference(*qkv, batch.cu_seqlens.tolist(), spec)
    torch.testing.assert_close(out.double(), expected, atol=2e-6, rtol=1e-5)


def test_it_says_what_it_stands_on() -> None:
    backend = ByShapeBackend(Ragged())
    assert backend.name == "ragged by shape"
    assert backend.grid_follows_max_seqlen
    assert backend.tells_shapes_apart
    assert not VarlenBackend().tells_shapes_apart


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "head_dim"), [((16, 8), 128), ((16, 16), 64), ((12, 12), 32)])
@pytest.mark.parametrize("lengths", [[512] * 9, [128] * 32, [1024] * 4, [32] * 150], ids=str)
def test_every_shape_is_right_on_the_card_eager_and_replayed(
    heads: tuple[int, int], head_dim: int, causal: bool, lengths: list[int]
) -> None:
    torch.manual_seed(0)
    spec = AttentionSpec(*heads, head_dim, causal=causal)
    backend = ByShapeBackend(VarlenBackend())
    backend.prepare(spec, torch.device("cuda"))
    batch = _batch(lengths, "cuda")
    packed = torch.randn(len(batch.token_ids), heads[0] + 2 * heads[1], head_dim, device="cuda")
    qkv = split_heads(packed.bfloat16(), spec)
    with torch.inference_mode():
        plan = backend.plan(batch, spec)
        assert plan.backend.name == ("varlen" if lengths[0] == 32 else "sdpa")
        offsets = batch.cu_seqlens.tolist()
        out = backend.run(*qkv, plan)
        assert out.is_contiguous()
        assert worst_error(out, qkv, offsets, spec) <= 1
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = backend.run(*qkv, plan)
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert worst_error(out, qkv, offsets, spec) <= 1


@pytest.mark.gpu
def test_cudnn_gives_its_result_in_the_order_of_strided_q() -> None:
    """So that no copy follows it."""
    spec = AttentionSpec(16, 8, 128, causal=False)
    packed = torch.randn(8 * 512, 32, 128, device="cuda").bfloat16()
    q, k, v = (x.view(8, 512, -1, 128).transpose(1, 2) for x in split_heads(packed, spec))
    with (
        torch.inference_mode(),
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION),
    ):
        out = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert out.transpose(1, 2).is_contiguous()
